import { decodeHeaders, decoder, parseJson, runMessages, topics, type MessageOf, type RunId } from '@holdfast/protocol';
import type { LogRecord, Outgoing } from '@holdfast/runtime';
import { createWriter, laneOf, partitionsOf, tail, type Tail, type TailOptions } from '@holdfast/runtime/kafka';

export type RunEvent = MessageOf<(typeof runMessages)[number]>;

/** An event of a run with its place in the run's stream. */
export interface RunEventRecord {
  /** From 1, without gaps. */
  readonly version: number;
  /** Epoch milliseconds. */
  readonly time: number;
  readonly event: RunEvent;
}

/** What a client asks of Kafka. @internal */
export interface ClientLog {
  /** Resolves with the record's offset, null where the log doesn't say. On rejection nobody knows whether it was written. */
  publish(record: Outgoing): Promise<number | null>;
  /** Reads one lane of `run.events`. */
  tail(options: { readonly lane: number; readonly from: TailOptions['from']; onRecord(record: LogRecord): void; onError(error: Error): void }): Promise<Tail>;
  laneOf(run: RunId): number;
  close(): Promise<void>;
}

/** The log behind these brokers. Rejects when they can't be reached, or Holdfast's topics aren't there. @internal */
export async function kafkaLog(brokers: readonly string[], clientId: string): Promise<ClientLog> {
  const partitions = await partitionsOf(brokers, topics.runEvents);
  if (partitions === 0) throw new Error(`topic ${topics.runEvents} does not exist at ${brokers.join(', ')}: start the Holdfast services first`);
  const writer = await createWriter({ brokers, clientId });
  return {
    publish: (record) => writer.append(record),
    tail: ({ lane, ...options }) => tail({ brokers, topics: [topics.runEvents], lanes: [lane], ...options }),
    laneOf: (run) => laneOf(run, partitions),
    close: () => writer.close(),
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
