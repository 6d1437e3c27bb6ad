import type { Message } from '@holdfast/protocol';
import type { JournalRow } from '../store/types.js';
import { chainHash } from './chain.js';
import type { Service } from './service.js';

/** A stream's state as the loop keeps it: where it is, its chain's head, and the fold. */
export interface Cached<State> {
  readonly version: number;
  readonly hash: string;
  /** Tenant of its events; `default` while there are none. */
  readonly tenant: string;
  readonly state: State;
}

/** A stream's rows don't chain: they were changed, cut out of the middle, or reordered. */
export class DamagedHistory extends Error {
  override readonly name = 'DamagedHistory';
}

/** An event of a stream can't be taken in by this version: a newer one has written it. */
export class NewerHistory extends Error {
  override readonly name = 'NewerHistory';
}

type OnEvent<State, Event> = (before: State, event: Event, after: State, at: number) => void;

/** Folds a stream's journal rows, and checks their chain while it goes. */
export function foldRows<State, Event extends Message>(service: Pick<Service<State, Event>, 'initial' | 'evolve'>, rows: readonly JournalRow[], onEvent?: OnEvent<State, Event>): Cached<State> {
  let cached: Cached<State> = { version: 0, hash: '', tenant: 'default', state: service.initial };
  for (const row of rows) cached = advance(service, cached, row, onEvent);
  return cached;
}

function advance<State, Event extends Message>(service: Pick<Service<State, Event>, 'evolve'>, before: Cached<State>, row: JournalRow, onEvent: OnEvent<State, Event> | undefined): Cached<State> {
  const version = before.version + 1;
  const hash = chainHash(before.hash, { ...row, version });
  if (row.version !== version || row.hash !== hash) {
    throw new DamagedHistory(`stream ${row.stream}: row ${row.lane}/${row.seq} (version ${String(row.version)}) doesn't follow version ${before.version}; the journal was altered outside Holdfast`);
  }
  try {
    const event = { type: row.type, data: JSON.parse(row.data) as unknown } as Event;
    const state = service.evolve(before.state, event, row.time);
    onEvent?.(before.state, event, state, row.time);
    return { version, hash, tenant: row.tenant, state };
  } catch (error) {
    throw new NewerHistory(`stream ${row.stream}: this version can’t take in its ${row.type} (row ${row.lane}/${row.seq}), which a newer one has written`, { cause: error });
  }
}
