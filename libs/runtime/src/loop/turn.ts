import type { Message } from '@holdfast/protocol';
import type { Clock, LogRecord, Random } from '../ports.js';
import type { JournalRow, LaneWrite, Shelved } from '../store/types.js';
import { Draft, Missing, type Counted, type DraftContext } from './draft.js';
import type { Inspected, Inspector } from './inbound.js';
import type { Lane } from './lane.js';
import type { LoopObserver, Marked } from './observer.js';
import type { Service } from './service.js';
import { ShelfFull } from './shelf.js';
import type { FailedTimerNews } from './timers.js';
import { DamagedHistory, foldRows, NewerHistory } from './streams.js';

/** What one lane brings into a turn. */
export interface LaneWork<State> {
  readonly lane: Lane<State>;
  readonly records: readonly LogRecord[];
  /** What an earlier holder of the lane has kept, since it couldn't read it: comes first. */
  readonly again?: readonly Shelved[];
  readonly due: readonly string[];
  /** What its one message leads to can't be written, for this reason: the message is not decided on, and taken for one that can't be read. */
  readonly notStorable?: string;
}

export interface Decided<State> {
  readonly lane: Lane<State>;
  readonly write: LaneWrite;
  readonly apply: () => void;
  /** It was not written, and the lane is still held: what it comes to is decided anew. */
  readonly discard: () => void;
  /** Why the lane can't go past a record, if it can't. */
  readonly halted: string | null;
  readonly counted: readonly Counted[];
  /** Looks at what was due that threw. */
  readonly failed: readonly FailedTimerNews[];
  readonly marks: readonly Marked[];
  /** Messages for which there is a handler. */
  readonly handled: () => LogRecord[];
}

export interface TurnContext<State, Event extends Message> {
  readonly service: Service<State, Event>;
  readonly inspector: Inspector<State, Event>;
  readonly clock: Clock;
  readonly random: Random;
  readonly load: (streams: readonly string[]) => Promise<Map<string, JournalRow[]>>;
  readonly lock: (keys: readonly string[]) => Promise<ReadonlyMap<string, string | null>>;
  readonly observer?: LoopObserver | undefined;
  /** A lane can't go on with what its journal holds: nothing of it is decided, and nothing passed over. */
  readonly halt: (lane: Lane<State>, reason: string) => void;
}

/** Nothing can be decided on a history that can't be trusted or understood; the other lanes go on. */
class Blocked<State> extends Error {
  readonly lane: Lane<State>;
  constructor(lane: Lane<State>, reason: string) {
    super(reason);
    this.lane = lane;
  }
}

interface Item<State, Event extends Message> {
  readonly record: LogRecord;
  readonly result: Inspected<State, Event>;
  /** Where it comes from the shelf. */
  readonly shelved: Shelved | null;
}

interface Read<State, Event extends Message> {
  readonly work: LaneWork<State>;
  readonly draft: Draft<State, Event>;
  readonly inspected: readonly Item<State, Event>[];
  readonly halted: string | null;
}

/** Inspects, loads and decides one turn. Where a handler asks for what was not fetched, it is fetched and the turn begun anew. */
export async function decideTurn<State, Event extends Message>(context: TurnContext<State, Event>, works: readonly LaneWork<State>[]): Promise<Decided<State>[]> {
  const extraLocks = new Set<string>();
  let wanted: string | null = null;
  for (let going = works; going.length > 0; ) {
    try {
      if (wanted !== null) await loadInto(context, new Map(going.map(({ lane }) => [lane, new Set([wanted ?? ''])])), 'asked');
      wanted = null;
      return await attempt(context, going, extraLocks);
    } catch (error) {
      if (error instanceof Blocked) {
        context.halt(error.lane as Lane<State>, error.message);
        going = going.filter(({ lane }) => lane !== error.lane);
        continue;
      }
      if (!(error instanceof Missing)) throw error;
      if (error.what === 'lock') extraLocks.add(error.id);
      else wanted = error.id;
    }
  }
  return [];
}

async function attempt<State, Event extends Message>(context: TurnContext<State, Event>, works: readonly LaneWork<State>[], extraLocks: ReadonlySet<string>): Promise<Decided<State>[]> {
  const locked = new Map<string, string | null>();
  const draftContext: DraftContext<State, Event> = { service: context.service, random: context.random, now: context.clock.now(), locked, observer: context.observer };
  const reads = works.map((work) => inspectAll(context, work, draftContext));
  await loadInto(context, new Map(reads.map((read) => [read.work.lane, streamsOf(read)])), 'named');
  await context.service.prepare?.(reads.flatMap(({ inspected }) => inspected.flatMap(({ result }) => (result.kind === 'message' ? [result.inbound] : []))));
  const keys = new Set([...extraLocks, ...reads.flatMap((read) => locksOf(context, read))]);
  if (keys.size > 0) for (const [key, data] of await context.lock([...keys])) locked.set(key, data);
  const decided: Decided<State>[] = [];
  try {
    for (const read of reads) decided.push(decideLane(context, read));
    return decided;
  } catch (error) {
    for (const { discard } of decided) discard();
    throw error;
  }
}

function inspectAll<State, Event extends Message>(context: TurnContext<State, Event>, work: LaneWork<State>, draftContext: DraftContext<State, Event>): Read<State, Event> {
  const draft = new Draft<State, Event>(work.lane, draftContext);
  const inspected: Item<State, Event>[] = (work.again ?? []).map((shelved) => ({ record: shelved.record, result: context.inspector.inspect(shelved.record, draft, true), shelved }));
  for (const record of work.records) {
    const read = context.inspector.inspect(record, draft);
    const result = work.notStorable === undefined ? read : notStorable(read, work.notStorable);
    if (result.kind === 'halt') return { work, draft, inspected, halted: result.reason };
    inspected.push({ record, result, shelved: null });
  }
  return { work, draft, inspected, halted: null };
}

const notStorable = <State, Event extends Message>(result: Inspected<State, Event>, message: string): Inspected<State, Event> =>
  result.kind === 'message' ? { kind: 'unreadable', problem: { record: result.inbound.record, envelope: result.inbound.envelope, reason: 'not_storable', message, data: undefined } } : result;

function streamsOf<State, Event extends Message>({ work, inspected }: Read<State, Event>): Set<string> {
  const streams = new Set<string>(work.due);
  const open = (tag: string): readonly string[] => work.lane.agenda.open(tag);
  for (const { result } of inspected) {
    if (result.kind === 'message') for (const stream of result.route.streams(result.inbound, open)) streams.add(stream);
    if (result.kind === 'unreadable' && result.problem.envelope !== undefined) streams.add(result.problem.envelope.subject);
  }
  return streams;
}

function locksOf<State, Event extends Message>({ service }: TurnContext<State, Event>, { work, inspected }: Read<State, Event>): string[] {
  const state = (stream: string): State => work.lane.stream(stream)?.state ?? service.initial;
  const keys: string[] = [];
  for (const { result } of inspected) if (result.kind === 'message') keys.push(...result.route.locks(result.inbound, state));
  for (const stream of work.due) keys.push(...(service.dueLocks?.(stream, state(stream)) ?? []));
  return keys;
}

/** A run that this version can't read rests on the shelf; where a decision asks for it even so, its lane stops. */
async function loadInto<State, Event extends Message>(context: TurnContext<State, Event>, wanted: ReadonlyMap<Lane<State>, ReadonlySet<string>>, why: 'named' | 'asked'): Promise<void> {
  const isWanted = (lane: Lane<State>, stream: string): boolean => lane.stream(stream) === undefined && (why === 'asked' || lane.shelf.reasonOf(stream) === undefined);
  const missing = [...wanted].flatMap(([lane, streams]) => [...streams].filter((stream) => isWanted(lane, stream)).map((stream) => ({ lane, stream })));
  if (missing.length === 0) return;
  const rows = await context.load([...new Set(missing.map(({ stream }) => stream))]);
  for (const { lane, stream } of missing) {
    try {
      lane.keep(stream, foldRows(context.service, rows.get(stream) ?? []));
    } catch (error) {
      const rests = lane.shelf.reasonOf(stream) !== undefined || stream.startsWith('~');
      if (error instanceof NewerHistory && !rests) lane.shelf.rest(stream, error.message);
      else if (error instanceof DamagedHistory || error instanceof NewerHistory) throw new Blocked(lane, error.message);
      else throw error;
    }
  }
}

function decideLane<State, Event extends Message>(context: TurnContext<State, Event>, { work, draft, inspected, halted }: Read<State, Event>): Decided<State> {
  for (const item of inspected) {
    try {
      decideItem(context, work.lane, draft, item);
    } catch (error) {
      if (error instanceof ShelfFull) throw new Blocked(work.lane, error.message);
      throw error;
    }
  }
  draft.handled();
  const due = new Set(work.due.filter((stream) => !draft.shelf.has(stream)));
  for (const stream of due) {
    const failure = guarded(context, draft, stream, 'default', () => context.service.onDue(stream, draft));
    if (failure === null) draft.timers.passed(stream);
    else draft.timers.failed(stream, failure);
  }
  const write = draft.finish(due);
  return { lane: work.lane, write, apply: () => draft.apply(write), discard: () => draft.discard(due), halted, counted: draft.counted, failed: draft.timers.news(), marks: draft.marks, handled: () => inspected.flatMap(({ record, result }) => (result.kind === 'message' ? [record] : [])) };
}

function decideItem<State, Event extends Message>(context: TurnContext<State, Event>, lane: Lane<State>, draft: Draft<State, Event>, { record, result, shelved }: Item<State, Event>): void {
  if (shelved === null) draft.at(record);
  else if (draft.shelf.isStuck(shelved.stream)) return;
  else draft.again(record, aboutOf(result) === shelved.stream ? null : shelved.stream);
  const kept = shelved === null ? toKeep(lane, draft, result) : [];
  for (const stream of kept) draft.shelf.put(stream, record);
  if (kept.length > 0) draft.count('shelved', result.kind === 'newer' ? 'newer_message' : 'run_not_readable');
  const about = aboutOf(result);
  if (about !== null && kept.includes(about)) return;
  switch (result.kind) {
    case 'skip':
      draft.count('skipped', result.because);
      break;
    case 'unreadable':
      draft.count('parked', result.problem.reason);
      guarded(context, draft, about, result.problem.envelope?.tenant ?? 'default', () => context.service.onUnreadable(result.problem, draft));
      break;
    case 'message': {
      const { inbound, route } = result;
      guarded(context, draft, inbound.envelope.subject, inbound.envelope.tenant, () => route.handle(inbound, draft));
      break;
    }
    case 'newer':
      draft.shelf.rest(result.stream, result.reason);
      return; // It stays where it is.
    case 'halt':
      if (shelved !== null) draft.shelf.rest(shelved.stream, result.reason);
      return; // Inspection of what has come now ends at the first one.
  }
  if (shelved !== null) draft.shelf.take(shelved);
}

/** Whose message it is. */
const aboutOf = <State, Event extends Message>(result: Inspected<State, Event>): string | null => {
  switch (result.kind) {
    case 'message':
      return result.inbound.envelope.subject;
    case 'unreadable':
      return result.problem.envelope?.subject ?? null;
    case 'newer':
      return result.stream;
    case 'skip':
    case 'halt':
      return null;
  }
};

/** For which streams a message has to be kept: its own, or, of one to a whole lane, those that can't hear it now. */
function toKeep<State, Event extends Message>(lane: Lane<State>, draft: Draft<State, Event>, result: Inspected<State, Event>): string[] {
  if (result.kind === 'newer') {
    draft.shelf.rest(result.stream, result.reason);
    return [result.stream];
  }
  if (draft.shelf.isEmpty) return [];
  const streams = result.kind === 'message' ? result.route.streams(result.inbound, (tag) => lane.agenda.open(tag)) : [aboutOf(result)];
  return streams.filter((stream): stream is string => stream !== null && draft.shelf.has(stream));
}

/** A handler that fails on one run's message takes that run out of the way, not the lane. Returns why it failed, if it did. */
function guarded<State, Event extends Message>(context: TurnContext<State, Event>, draft: Draft<State, Event>, stream: string | null, tenant: string, handle: () => void): Error | null {
  const mark = draft.mark();
  try {
    handle();
    return null;
  } catch (error) {
    if (error instanceof Missing) throw error;
    draft.backTo(mark);
    const failure = error instanceof Error ? error : new Error(String(error));
    draft.count('poison', failure.name);
    if (stream === null) draft.park('poison', failure.message);
    else context.service.onPoison(stream, tenant, failure, draft);
    return failure;
  }
}
