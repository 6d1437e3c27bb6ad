import { auditMessages, caseMessages, contractMessages, deadLetterMessages, decodeHeaders, effectMessages, intentMessages, isoTime, operatorMessages, parseJson, planMessages, runMessages, runTaskMessages, toolResultMessages, toolTaskMessages, topics, workerMessages, type Json } from '@holdfast/protocol';
import { tail, type Tail, type TailOptions } from '@holdfast/runtime/kafka';

/** One message of a topic, as it came. `run` is its key: for `contracts` and the like, whatever it is about. */
export interface LiveEvent {
  /** RFC 3339. */
  readonly time: string;
  readonly topic: string;
  readonly lane: number;
  readonly offset: number;
  readonly type: string;
  readonly run: string;
  readonly tenant: string;
  readonly version: number | null;
  readonly data: Json;
}

export interface LiveFilter {
  readonly run?: string | undefined;
  readonly tenant?: string | undefined;
  readonly types?: readonly string[] | undefined;
}

/** Topics on which something happens to a run. */
export const EVENT_TOPICS = [topics.runEvents, topics.effectEvents, topics.reconciliationEvents, topics.compensationEvents, topics.deadLetters] as const;

/** Tells each message that the filter lets through, until closed. What a service published twice is told once. */
export async function follow(options: { brokers: readonly string[]; topics: readonly string[]; from: TailOptions['from']; filter: LiveFilter; onEvent: (event: LiveEvent) => void }): Promise<Tail> {
  const { brokers, topics, from, filter, onEvent } = options;
  // Of each writer and lane the last number seen on a topic: a republication has one that is not above it.
  const seen = new Map<string, number>();
  return tail({
    brokers,
    topics,
    from,
    onRecord: (record) => {
      const { topic, lane, offset } = record;
      const envelope = decodeHeaders(record.headers, record.key, record.time);
      if (envelope === undefined) return;
      if (envelope.seq !== undefined) {
        const writer = `${topic}|${envelope.source}|${envelope.lane ?? ''}`;
        if (envelope.seq <= (seen.get(writer) ?? 0)) return;
        seen.set(writer, envelope.seq);
      }
      const { type, subject: run, tenant, version = null, time } = envelope;
      if (!passes(filter, { type, run, tenant })) return;
      const parsed = parseJson(record.value ?? '');
      onEvent({ time: isoTime(time), topic, lane, offset, type, run, tenant, version, data: parsed.ok ? parsed.value : (record.value ?? null) });
    },
  });
}

const TYPES: Readonly<Record<string, readonly { readonly type: string }[]>> = {
  [topics.agentIntents]: intentMessages,
  [topics.runEvents]: runMessages,
  [topics.toolResults]: toolResultMessages,
  [topics.effectEvents]: effectMessages,
  [topics.reconciliationEvents]: caseMessages,
  [topics.compensationEvents]: planMessages,
  [topics.operatorCommands]: operatorMessages,
  [topics.workerEvents]: workerMessages,
  [topics.contracts]: contractMessages,
  [topics.deadLetters]: deadLetterMessages,
  [topics.auditEvents]: auditMessages,
};
const POOL_TYPES = [...runTaskMessages, ...toolTaskMessages];

/** The types asked for that none of the topics holds, and those that they do. */
export function unknownTypes(wanted: readonly string[], on: readonly string[]): { readonly unknown: readonly string[]; readonly known: readonly string[] } {
  const known = on.flatMap((topic) => (TYPES[topic] ?? POOL_TYPES).map(({ type }) => type));
  return { unknown: wanted.filter((type) => !known.includes(type)), known };
}

export const passes = ({ run, tenant, types }: LiveFilter, event: Pick<LiveEvent, 'type' | 'run' | 'tenant'>): boolean =>
  (run === undefined || event.run === run) && (tenant === undefined || event.tenant === tenant) && (types === undefined || types.includes(event.type));
