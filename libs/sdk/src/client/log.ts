import { decodeHeaders, decoder, parseJson, runMessages, topics, type MessageOf, type RunId } from '@holdfast/protocol';
import type { LogRecord, Outgoing } from '@holdfast/runtime';
import { createWriter, laneOf, partitionsOf, tail, type Tail, type TailOptions } from '@holdfast/runtime/kafka';
import { brokerError, withBrokers } from '../broker-error.js';
import { BrokersUnavailable } from '../errors.js';

/** What happened to a run: one of the messages of `run.events`, told apart by `type`. */
export type RunEvent = MessageOf<(typeof runMessages)[number]>;

/** An event of a run with its place in the run's stream. */
export interface RunEventRecord {
  /** From 1, without gaps. */
  readonly version: number;
  /** Epoch milliseconds. */
  readonly time: number;
  /** What happened. */
  readonly event: RunEvent;
}

/** What a client asks of Kafka. @internal */
export interface ClientLog {
  /** Resolves with the record's offset, null where the log doesn't say. On rejection nobody knows whether it was written. */
  publish(record: Outgoing): Promise<number | null>;
  /** Reads one lane of `run.events`; `run`: for whom, where it is one. */
  tail(options: { readonly lane: number; readonly run?: RunId; readonly from: TailOptions['from']; onRecord(record: LogRecord): void; onError(error: Error): void }): Promise<Tail>;
  laneOf(run: RunId): number;
  close(): Promise<void>;
}

/** The log behind these brokers. @throws BrokersUnavailable they can't be reached, or Holdfast's topics aren't there; BrokerRefused @internal */
export async function kafkaLog(brokers: readonly string[], clientId: string): Promise<ClientLog> {
  return withBrokers(
    async () => {
      const partitions = await partitionsOf(brokers, topics.runEvents);
      if (partitions === 0) throw new BrokersUnavailable(`topic ${topics.runEvents} does not exist at ${brokers.join(', ')}: start the Holdfast services first`);
      const writer = await createWriter({ brokers, clientId });
      return inOurWords(brokers, {
        publish: (record) => writer.append(record),
        tail: ({ lane, run: _, ...options }) => tail({ brokers, topics: [topics.runEvents], lanes: [lane], ...options }),
        laneOf: (run) => laneOf(run, partitions),
        close: () => writer.close(),
      });
    },
    `client ${clientId} can't connect`,
    brokers,
    'connect again',
  );
}

/** A log whose errors are Holdfast's: what happened, to what, and what to do. @internal */
export function inOurWords(brokers: readonly string[], log: ClientLog): ClientLog {
  return {
    publish: (record) =>
      withBrokers(() => log.publish(record), () => `${decodeHeaders(record.headers, record.key, 0)?.type ?? 'a message'} for run ${record.key} may not have been written to ${record.topic}`, brokers, 'do it again under the same ids: written twice it is taken once'),
    tail: async ({ onError, ...options }) => {
      const what = `${options.run === undefined ? 'events of runs' : `the events of run ${options.run}`} (lane ${options.lane} of ${topics.runEvents}) can't be read`;
      const mend = 'ask again: all of them are kept';
      const worded = (error: unknown): unknown => brokerError(error, what, brokers, mend);
      const reader = await withBrokers(() => log.tail({ ...options, onError: (error) => onError(worded(error) as Error) }), what, brokers, mend);
      const caughtUp = reader.caughtUp.catch((error: unknown) => {
        throw worded(error);
      });
      caughtUp.catch(() => undefined); // Whoever waits for it hears of it.
      return { caughtUp, close: () => reader.close() };
    },
    laneOf: (run) => log.laneOf(run),
    close: () => log.close(),
  };
}

const decode = decoder(runMessages);

/**
 * The run that a record is about, without reading its value; undefined for what no service wrote.
 * Most records of a lane are about other runs.
 * @internal
 */
export function headOf(record: LogRecord): { readonly run: string; readonly tenant: string; readonly version: number; read(): RunEventRecord | undefined } | undefined {
  const envelope = decodeHeaders(record.headers, record.key, record.time);
  if (envelope?.version === undefined) return undefined;
  const { subject, tenant, version, type, time } = envelope;
  return {
    run: subject,
    tenant,
    version,
    /** Undefined for a type newer than this client. */
    read: () => {
      const parsed = parseJson(record.value ?? '');
      const decoded = parsed.ok ? decode(type, parsed.value) : undefined;
      return decoded?.ok === true ? { version, time, event: decoded.message } : undefined;
    },
  };
}
