import { randomUUID } from 'node:crypto';
import type { LaneGroup, LogRecord } from '../ports.js';
import { pause, systemClock } from '../system.js';
import { connect, type ConnectOptions } from './client.js';
import { createLaneGroup, type LaneGroupOptions } from './lane-group.js';

const RETRY_FIRST_MS = 100;
const RETRY_MOST_MS = 5000;

export interface TailOptions extends Omit<ConnectOptions, 'clientId'> {
  readonly topics: readonly string[];
  /** `last`: the last record that is there, and what follows it. */
  readonly from: 'beginning' | 'end' | 'last' | { readonly time: number } | { readonly offset: number };
  /** All lanes when absent. */
  readonly lanes?: readonly number[];
  readonly onRecord: (record: LogRecord) => void;
  /** Called after each stretch of a lane; nothing more of that lane is delivered until it resolves. */
  readonly hold?: () => Promise<void>;
  /** It could not begin. Once it has, it comes back by itself after whatever trouble. */
  readonly onError?: (error: Error) => void;
}

export interface Tail {
  /** Resolves when every record that was there at the start has been delivered. */
  readonly caughtUp: Promise<void>;
  close(): Promise<void>;
}

/**
 * Reads topics without sharing them: every caller gets every record of the lanes named, from the
 * place named on, in the order of its lane. It commits nothing. Retried fetches may deliver nothing twice, services' own
 * republications may: drop those by (`ce_source`, `ce_lane`, `ce_seq`).
 */
export async function tail(options: TailOptions, createGroup: (options: LaneGroupOptions) => LaneGroup = createLaneGroup): Promise<Tail> {
  const clientId = `tail-${randomUUID()}`;
  // By topic and lane.
  const next = new Map<string, number>();
  const target = new Map<string, number>();
  let resolveCaughtUp: () => void = () => undefined;
  let rejectCaughtUp: (error: Error) => void = () => undefined;
  const caughtUp = new Promise<void>((resolve, reject) => {
    resolveCaughtUp = resolve;
    rejectCaughtUp = reject;
  });
  caughtUp.catch(() => undefined);
  const fail = (error: Error): void => {
    rejectCaughtUp(error);
    options.onError?.(error);
  };
  const check = (): void => {
    if ([...target].every(([place, end]) => (next.get(place) ?? 0) >= end)) resolveCaughtUp();
  };
  let begun = false;
  let closed = false;
  let assignments = 0;
  /** Tries until it succeeds or is not `wanted` any more; before the tail has begun, a failure is its caller's. */
  const insist = async (work: () => Promise<void>, wanted: () => boolean): Promise<void> => {
    for (let retryMs = RETRY_FIRST_MS; wanted() && !closed; retryMs = Math.min(retryMs * 2, RETRY_MOST_MS)) {
      try {
        return await work();
      } catch (error) {
        if (!begun) return fail(error instanceof Error ? error : new Error(String(error)));
        await pause(systemClock, retryMs);
      }
    }
  };
  const group = createGroup({
    brokers: options.brokers,
    clientId,
    groupId: `holdfast.${clientId}`,
    topics: options.topics,
    handlers: {
      onAssigned: ({ lanes }) => {
        assignments += 1;
        const mine = assignments;
        const current = (): boolean => mine === assignments;
        void insist(() => position(lanes.filter((lane) => options.lanes?.includes(lane) ?? true), current), current);
      },
      onRevoked: () => undefined,
      onRecords: async (records) => {
        for (const record of records) {
          const place = placeOf(record);
          if (record.offset < (next.get(place) ?? 0)) continue;
          next.set(place, record.offset + 1);
          options.onRecord(record);
        }
        await options.hold?.().catch(fail);
        check();
      },
      onCrash: (error) => (begun ? void insist(() => group.rejoin(), () => true) : fail(error)),
    },
  });
  const position = async (lanes: readonly number[], current: () => boolean): Promise<void> => {
    const places = (await Promise.all(options.topics.map((topic) => placesIn(group, topic, lanes, options)))).flat();
    if (!current()) return;
    begun = true;
    for (const { start, end, ...at } of places) {
      const place = placeOf(at);
      if (!next.has(place)) next.set(place, start);
      if (!target.has(place)) target.set(place, end);
    }
    group.open(places.map(({ topic, lane }) => ({ topic, lane, offset: next.get(placeOf({ topic, lane })) ?? 0 })));
    check();
  };
  await group.start().catch((error: unknown) => {
    void group.stop().catch(() => undefined); // Its caller may try again: what is connected must not stay so.
    throw error;
  });
  return {
    caughtUp,
    close: () => {
      closed = true;
      return group.stop();
    },
  };
}

const placeOf = ({ topic, lane }: { readonly topic: string; readonly lane: number }): string => `${topic}/${lane}`;

/** Where reading starts in each lane of a topic, and what stands there already. */
async function placesIn(group: LaneGroup, topic: string, lanes: readonly number[], options: TailOptions): Promise<{ topic: string; lane: number; start: number; end: number }[]> {
  const offsets = await group.offsets(topic);
  const byTime = typeof options.from === 'object' && 'time' in options.from ? await offsetsAt(options, topic, options.from.time) : new Map<number, number>();
  return lanes.map((lane) => {
    const bounds = offsets.get(lane) ?? { first: 0, next: 0 };
    return { topic, lane, start: startOf(options.from, bounds, byTime.get(lane)), end: bounds.next };
  });
}

function startOf(from: TailOptions['from'], bounds: { first: number; next: number }, atTime: number | undefined): number {
  if (from === 'beginning') return bounds.first;
  if (from === 'end') return bounds.next;
  if (from === 'last') return Math.max(bounds.first, bounds.next - 1);
  if ('offset' in from) return Math.max(from.offset, bounds.first);
  return atTime === undefined || atTime < 0 ? bounds.next : atTime;
}

async function offsetsAt(options: TailOptions, topic: string, time: number): Promise<Map<number, number>> {
  const admin = connect({ brokers: options.brokers, clientId: 'tail-admin' }).admin();
  await admin.connect();
  try {
    const entries = await admin.fetchTopicOffsetsByTimestamp(topic, time);
    return new Map(entries.map(({ partition, offset }) => [partition, Number(offset)]));
  } finally {
    await admin.disconnect();
  }
}

/** Reads a stretch of one lane: offsets `from` up to, not including, `to`. */
export async function readLane(brokers: readonly string[], topic: string, lane: number, from: number, to: number): Promise<LogRecord[]> {
  if (from >= to) return [];
  const records: LogRecord[] = [];
  let done: () => void = () => undefined;
  let failed: (error: Error) => void = () => undefined;
  const complete = new Promise<void>((resolve, reject) => {
    done = resolve;
    failed = reject;
  });
  const reader = await tail({
    brokers,
    topics: [topic],
    lanes: [lane],
    from: { offset: from },
    onRecord: (record) => {
      if (record.offset < to) records.push(record);
      if (record.offset >= to - 1) done();
    },
    onError: failed,
  });
  try {
    await Promise.race([complete, reader.caughtUp]);
    return records;
  } finally {
    await reader.close();
  }
}
