import { unreachable } from '@holdfast/kernel';
import { encodeHeaders, message, type Envelope, type MessageOf } from '@holdfast/protocol';
import { z } from 'zod';
import { Inspector } from '../src/loop/inbound.js';
import { Lane } from '../src/loop/lane.js';
import type { LoopObserver } from '../src/loop/observer.js';
import { on, type Service, type Turn, type Unreadable } from '../src/loop/service.js';
import { decideTurn, type Decided, type LaneWork } from '../src/loop/turn.js';
import type { LogRecord } from '../src/ports.js';
import type { JournalRow, Progress } from '../src/store/types.js';

/** A small service: wishes from outsiders and news from another service move a counter by stream. */
export const Opened = message('Opened', z.object({ tag: z.string() }));
export const Added = message('Added', z.object({ n: z.number() }));
export const Closed = message('Closed', z.object({}));
export const Wish = message('Wish', z.object({ does: z.enum(['open', 'add', 'close', 'list', 'boom', 'all', 'share', 'refuse', 'look']), n: z.number().optional(), at: z.string().optional() }));
/** To all open streams of its lane. */
export const ToAll = message('ToAll', z.object({ n: z.number() }));
export const Ignored = message('Ignored', z.object({}));
export const News = message('News', z.object({ n: z.number() }));
export const OtherNews = message('OtherNews', z.object({}));
export const Said = message('Said', z.object({ what: z.string() }));

export type CounterEvent = MessageOf<typeof Opened> | MessageOf<typeof Added> | MessageOf<typeof Closed>;
export interface Counter {
  readonly open: boolean;
  readonly tag: string | null;
  readonly n: number;
}

export const WISHES = 'wishes';
export const NEWS = 'news';
export const OWN = 'counter.events';
export const SAID = 'said';

const evolve = (state: Counter, event: CounterEvent): Counter => {
  switch (event.type) {
    case 'Opened':
      return { open: true, tag: event.data.tag, n: 0 };
    case 'Added':
      return { ...state, n: state.n + event.data.n };
    case 'Closed':
      return { ...state, open: false };
    default:
      return unreachable(event);
  }
};

function wished(stream: string, data: MessageOf<typeof Wish>['data'], turn: Turn<Counter, CounterEvent>): void {
  switch (data.does) {
    case 'open':
      return turn.record(stream, 'acme', Opened({ tag: 't' }));
    case 'add':
      return turn.record(stream, 'acme', Added({ n: data.n ?? 1 }));
    case 'close':
      return turn.record(stream, 'acme', Closed({}));
    case 'list':
      return turn.send(SAID, stream, 'acme', Said({ what: [...turn.open('t')].sort().join(',') }));
    case 'all':
      for (const open of turn.open('t')) turn.record(open, 'acme', Added({ n: data.n ?? 1 }));
      return;
    case 'share':
      turn.putShared('row', `${turn.shared('row') ?? ''}${stream};`);
      return;
    case 'look':
      return turn.send(SAID, stream, 'acme', Said({ what: String(turn.state(data.at ?? stream).n) }));
    case 'refuse':
      turn.answered();
      return;
    case 'boom':
      turn.record(stream, 'acme', Added({ n: 1000 }));
      turn.send(SAID, stream, 'acme', Said({ what: 'never' }));
      turn.wake('other', 1);
      turn.park('x', 'never');
      throw new TypeError('boom');
  }
}

export const counter = (told: Unreadable[] = []): Service<Counter, CounterEvent> => ({
  name: 'counter',
  ownTopic: OWN,
  inbound: [
    { name: WISHES, writtenBy: 'outsider', types: [Wish, ToAll, Ignored] },
    { name: NEWS, writtenBy: 'service', types: [News, OtherNews] },
  ],
  routes: [
    on<Counter, CounterEvent, MessageOf<typeof Wish>['data']>(WISHES, Wish, ({ envelope, data }, turn) => wished(envelope.subject, data, turn)),
    on<Counter, CounterEvent, MessageOf<typeof ToAll>['data']>(
      WISHES,
      ToAll,
      ({ data }, turn) => {
        for (const stream of turn.open('t')) turn.record(stream, 'acme', Added({ n: data.n }));
      },
      { streams: (_, open) => open('t') },
    ),
    on<Counter, CounterEvent, MessageOf<typeof News>['data']>(NEWS, News, ({ envelope, data }, turn) => turn.record(envelope.subject, envelope.tenant, Added({ n: data.n }))),
  ],
  initial: { open: false, tag: null, n: 0 },
  evolve,
  agenda: ({ open, tag }) => ({ open, dueAt: null, tag }),
  onDue: (stream, turn) => turn.send(SAID, stream, 'acme', Said({ what: 'due' })),
  onUnreadable: (problem, turn) => {
    told.push(problem);
    turn.park(problem.reason, problem.message);
  },
  onPoison: (stream, tenant, error, turn) => {
    turn.park('poison', error.message);
    turn.send(SAID, stream, tenant, Said({ what: `poison: ${error.message}` }));
  },
});

export const LANE = 2;
export const NOW = 1_700_000_000_000;

export const progress = (over: Partial<Progress> = {}): Progress => ({ lane: LANE, epoch: 1, offsets: {}, seen: {}, parked: {}, last: {}, nextSeq: 1, published: 0, ...over });
export const lane = (over: Partial<Progress> = {}): Lane<Counter> => new Lane<Counter>(progress(over), new Map());

const envelope = (type: string, subject: string, over: Partial<Envelope>): Envelope => ({ id: 'i', type, source: 'someone', subject, time: NOW, tenant: 'acme', ...over });

export const wish = (offset: number, stream: string, data: unknown, over: Partial<LogRecord> & { type?: string } = {}): LogRecord => {
  const { type = 'Wish', ...rest } = over;
  return { topic: WISHES, lane: LANE, offset, key: stream, headers: encodeHeaders(envelope(type, stream, {})), value: JSON.stringify(data), time: NOW, ...rest };
};

export const news = (offset: number, seq: number, prev: number, over: { type?: string; data?: unknown; stream?: string; source?: string; lane?: number } = {}): LogRecord => {
  const { type = 'News', data = { n: 1 }, stream = 's1', source = 'holdfast/other/1', lane: of = LANE } = over;
  return { topic: NEWS, lane: LANE, offset, key: stream, headers: encodeHeaders(envelope(type, stream, { source, lane: of, seq, prev })), value: JSON.stringify(data), time: NOW };
};

export interface Turned {
  readonly decided: Decided<Counter>;
  readonly rows: readonly JournalRow[];
  readonly counts: readonly string[];
}

export interface TurnsOptions {
  readonly journal?: readonly JournalRow[];
  readonly rows?: Map<string, string | null>;
  readonly told?: Unreadable[];
  readonly now?: number;
  readonly observer?: LoopObserver;
  readonly service?: Partial<Service<Counter, CounterEvent>>;
}

/** One turn over one lane, written at once. */
export async function turn(of: Lane<Counter>, records: readonly LogRecord[], options: { due?: readonly string[] } & TurnsOptions = {}): Promise<Turned> {
  const [first] = await turns([{ lane: of, records, due: options.due ?? [] }], options);
  if (first === undefined) throw new Error('no lane was decided');
  return first;
}

export async function turns(works: readonly LaneWork<Counter>[], options: TurnsOptions = {}): Promise<Turned[]> {
  const service = { ...counter(options.told), ...options.service };
  const counts: string[] = [];
  const decided = await decideTurn(
    {
      service,
      inspector: new Inspector(service, () => LANE),
      clock: { now: () => options.now ?? NOW, after: () => () => undefined, soon: () => undefined },
      random: { next: () => 0.5, uuid: () => 'u' },
      load: (streams) => Promise.resolve(new Map(streams.map((stream) => [stream, (options.journal ?? []).filter((row) => row.stream === stream && row.topic === OWN)]))),
      lock: (keys) => Promise.resolve(new Map(keys.map((key) => [key, options.rows?.get(key) ?? null]))),
      observer: options.observer,
      halt: ({ id }, reason) => {
        throw Object.assign(new Error(reason), { name: 'Halted', lane: id });
      },
    },
    works,
  );
  for (const { apply, counted } of decided) {
    apply();
    counts.push(...counted.map(({ what, because }) => `${what}: ${because}`));
  }
  return decided.map((one) => ({ decided: one, rows: one.write.rows, counts }));
}

/** What rows say, without where they stand. */
export const said = (rows: readonly JournalRow[]): string[] => rows.map(({ topic, stream, type, data }) => `${topic} ${stream} ${type} ${data}`);
export const parsed = (row: JournalRow | undefined): unknown => JSON.parse(row?.data ?? 'null');

const PATIENCE_MS = 20_000;
/** Lets everything else go on until a fact holds; the time only ends what would hang. */
export async function until(fact: () => boolean, what: string): Promise<void> {
  for (const began = Date.now(); Date.now() - began < PATIENCE_MS; ) {
    if (fact()) return;
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
  throw new Error(`never came: ${what}`);
}
