import { Loop } from '../src/loop/loop.js';
import type { Service } from '../src/loop/service.js';
import type { LaneGroup, LaneGroupHandlers, LogRecord } from '../src/ports.js';
import type { LaneWrite, Store } from '../src/store/types.js';
import { counter, LANE, progress, type Counter, type CounterEvent } from './kit.js';

export const OTHER = LANE + 1;
const MEMBER = 'm';

/** A loop on a store and a group of a few lines; each test says what they do otherwise. */
export function loopOn({ service = counter(), store = {}, group = {}, now = () => 1, laneOf = () => LANE }: { service?: Service<Counter, CounterEvent>; store?: Partial<Store>; group?: Partial<LaneGroup>; now?: () => number; laneOf?: (key: string) => number }) {
  let handlers: LaneGroupHandlers | undefined;
  const alarms: string[] = [];
  const appended: LaneWrite[] = [];
  const published: string[] = [];
  const loop = new Loop({
    service,
    store: {
      incarnation: () => Promise.resolve('1'),
      takeLanes: (lanes) => Promise.resolve(lanes.map((lane) => progress({ lane }))),
      nextSeqs: () => Promise.resolve([]),
      rowsAfter: () => Promise.resolve([]),
      openStreams: () => Promise.resolve([]),
      shelved: () => Promise.resolve([]),
      loadStreams: () => Promise.resolve(new Map()),
      append: (writes) => {
        appended.push(...writes);
        return Promise.resolve(new Set(writes.map(({ progress: { lane } }) => lane)));
      },
      lock: () => Promise.reject(new Error('no locks here')),
      close: () => Promise.resolve(),
      ...store,
    },
    writer: { publish: (rows) => Promise.resolve(void published.push(...rows.map(({ key, headers }) => `${key} ${String(headers['ce_seq'])}`))), close: () => Promise.resolve() },
    clock: { now, after: () => () => undefined, soon: () => undefined },
    random: { next: () => 0, uuid: () => 'u' },
    laneOf,
    join: (given) => {
      handlers = given;
      return {
        sessionTimeoutMs: 1000,
        start: () => Promise.resolve(),
        stop: () => Promise.resolve(),
        rejoin: () => Promise.resolve(),
        open: () => undefined,
        committed: () => Promise.resolve(new Map()),
        offsets: () => Promise.resolve(new Map([LANE, OTHER].map((lane) => [lane, { first: 0, next: 2 }]))),
        commit: () => Promise.resolve('accepted'),
        heartbeatAgeMs: () => null,
        ...group,
      };
    },
    repair: () => Promise.resolve(),
    onAlarm: (what, detail) => void alarms.push(`${what} ${JSON.stringify(detail)}`),
    onFatal: (error) => void alarms.push(error.message),
  });
  return {
    loop,
    alarms,
    appended,
    published,
    arrive: (...records: LogRecord[]): Promise<void> => handlers?.onRecords(records, { memberId: MEMBER, generation: 1 }) ?? Promise.resolve(),
    assign: (generation: number, lanes: readonly number[] = [LANE, OTHER], retained: readonly number[] = []): void => handlers?.onAssigned({ membership: { memberId: MEMBER, generation }, lanes, retained }),
  };
}
