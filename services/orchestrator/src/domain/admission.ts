import type { Instant, RunId, StartRefused, MessageOf } from '@holdfast/protocol';
import { z } from 'zod';

/*
 * A gate is what limits how many runs are open at once: a conversation (one), a tenant, an agent. Each is a
 * row that spans lanes. A run passes its gates in one order, always the same, so that no two wait for each other.
 */

/** Names a gate: `["key", tenant, conversation]`, `["tenant", name]`, `["agent", name]`. */
export type GateName = readonly ['key', string, string] | readonly ['tenant' | 'agent', string];
export const gateKey = (name: GateName): string => `gate:${JSON.stringify(name)}`;
export const gateName = (key: string): GateName => JSON.parse(key.slice('gate:'.length)) as GateName;

const Waiting = z.object({ run: z.string(), tenant: z.string(), priority: z.number(), since: z.number(), front: z.literal(true).optional() });
export const GateRow = z.object({
  open: z.number().int(),
  /** Who has it, where only one can. */
  holder: z.string().nullable(),
  /** In the order in which they are let in. */
  queue: z.array(Waiting),
  /** What is left of the rate, and when that was counted. */
  tokens: z.number().nullable(),
  countedAt: z.number(),
});
export type GateRow = z.infer<typeof GateRow>;
export const emptyGate: GateRow = { open: 0, holder: null, queue: [], tokens: null, countedAt: 0 };

/** What an operator sets for a gate. Absent: no such limit. */
export const GateLimit = z.object({
  openMax: z.number().int().min(1).optional(),
  startsPerMinute: z.number().min(1).optional(),
  /** How many may wait; 0: whoever finds no room is refused. Default 1000. */
  queueMax: z.number().int().min(0).max(100_000).optional(),
  /** How long one may wait at most. Milliseconds; default an hour. */
  queueMs: z.number().int().min(1).optional(),
});
export type GateLimit = z.infer<typeof GateLimit>;

export interface Gate {
  readonly name: GateName;
  readonly row: GateRow;
  readonly limit: GateLimit;
}

/** A run that asks to be let in. */
export interface Asking {
  readonly run: RunId;
  readonly tenant: string;
  readonly priority: number;
  readonly queueMs: number | undefined;
  readonly mode: Concurrent;
  readonly at: Instant;
}

/** What happens to a start whose conversation has an open run. */
export type Concurrent = 'enqueue' | 'reject' | 'interrupt' | 'rollback';

export type Refused = Pick<MessageOf<typeof StartRefused>['data'], 'reason' | 'message' | 'retryAt' | 'holder'>;
export type Admission =
  | { readonly kind: 'open'; readonly gates: readonly string[] }
  /** `gates`: those that it has passed. `cancel`: the run that has to make room. */
  | { readonly kind: 'queued'; readonly gates: readonly string[]; readonly gate: string; readonly message: string; readonly since: Instant; readonly expiresAt: Instant; readonly cancel: string | null }
  | ({ readonly kind: 'refused' } & Refused);
/** What becomes of a run that was accepted. */
export type Accepted = Exclude<Admission, { kind: 'refused' }>;
type Refusal = Exclude<Admission, Accepted>;

const MINUTE_MS = 60_000;
const QUEUE_MAX = 1000;
const QUEUE_MS = 60 * MINUTE_MS;
/** When to look again, where nobody knows when there will be room. Milliseconds. */
const RETRY_AFTER_MS = 10_000;

export interface Admitted<Of extends Admission = Admission> {
  readonly admission: Of;
  /** Rows as they are then; nothing is written of a start that is refused. */
  readonly rows: ReadonlyMap<string, GateRow>;
}

/** Lets a run through its gates, as far as there is room. */
export function admit(asking: Asking, gates: readonly Gate[]): Admitted {
  const rated = gates.map((gate) => ({ ...gate, row: refilled(gate, asking.at) }));
  const dry = rated.find(({ row, limit }) => limit.startsPerMinute !== undefined && (row.tokens ?? 0) < 1);
  if (dry !== undefined) {
    const perMinute = dry.limit.startsPerMinute ?? 1;
    return refused('rate_limited', `${inWords(dry.name)} may start ${perMinute} runs a minute`, Math.ceil(asking.at + ((1 - (dry.row.tokens ?? 0)) * MINUTE_MS) / perMinute));
  }
  const taken = rated.map((gate) => ({ ...gate, row: gate.row.tokens === null ? gate.row : { ...gate.row, tokens: gate.row.tokens - 1 } }));
  return pass(asking, taken, [], refusalOf);
}

/** A queued run whose turn has come at one gate goes on to those behind it. It was accepted: however many wait there, it may wait too. */
export const admitFurther = (asking: Asking, gates: readonly Gate[], passed: readonly string[]): Admitted<Accepted> => pass<never>(asking, gates, passed, () => null);

function pass<No extends Refusal>(asking: Asking, gates: readonly Gate[], passed: readonly string[], refuses: (asking: Asking, gate: Gate) => No | null): Admitted<Accepted | No> {
  const rows = new Map<string, GateRow>(gates.map(({ name, row }) => [gateKey(name), row]));
  const through = [...passed];
  for (const gate of gates) {
    const key = gateKey(gate.name);
    if (passed.includes(key)) continue;
    const { row } = gate;
    if (row.open < maxOf(gate) && row.queue.length === 0) {
      rows.set(key, { ...row, open: row.open + 1, holder: gate.name[0] === 'key' ? asking.run : null });
      through.push(key);
      continue;
    }
    const no = refuses(asking, gate);
    if (no !== null) return { admission: no, rows: new Map() };
    const { front, ...waits } = waitAt(asking, gate);
    rows.set(key, queued(row, asking, front));
    return { admission: { kind: 'queued', gates: through, gate: key, since: asking.at, ...waits }, rows };
  }
  return { admission: { kind: 'open', gates: through }, rows };
}

/** Why a run that finds no room at a gate may not wait there; null where it may. */
function refusalOf({ mode, queueMs, at }: Asking, gate: Gate): Refusal | null {
  const { name, row, limit } = gate;
  const no = (reason: Refused['reason']): Refusal => ({ kind: 'refused', reason, message: busy(gate), retryAt: at + RETRY_AFTER_MS });
  if (name[0] === 'key' && mode === 'reject') return { ...no('concurrent_run'), ...(row.holder === null ? {} : { holder: row.holder as RunId }) };
  const queueMax = limit.queueMax ?? QUEUE_MAX;
  if (queueMax === 0 || queueMs === 0) return no('limit_reached');
  return row.queue.length >= queueMax ? no('queue_full') : null;
}

function waitAt({ mode, queueMs, at }: Asking, gate: Gate): { readonly message: string; readonly expiresAt: Instant; readonly front: boolean; readonly cancel: string | null } {
  const { name, row, limit } = gate;
  const takesOver = name[0] === 'key' && (mode === 'interrupt' || mode === 'rollback');
  return { message: busy(gate), expiresAt: at + Math.min(queueMs ?? Infinity, limit.queueMs ?? QUEUE_MS), front: takesOver, cancel: takesOver ? row.holder : null };
}

const busy = ({ name, row }: Gate): string => `${inWords(name)} has ${row.open} open ${row.open === 1 ? 'run' : 'runs'}${row.queue.length === 0 ? '' : `, and ${row.queue.length} wait`}`;

/** Higher priority first, then who came first. Who takes over goes before all that do not. */
function queued(row: GateRow, { run, tenant, priority, at }: Asking, front: boolean): GateRow {
  const entry = { run, tenant, priority, since: at, ...(front ? { front: true as const } : {}) };
  const goesBefore = (other: GateRow['queue'][number]): boolean => front !== (other.front === true) ? front : priority > other.priority;
  const place = row.queue.findIndex(goesBefore);
  const queue = [...row.queue];
  queue.splice(place < 0 ? queue.length : place, 0, entry);
  return { ...row, queue };
}

/** A run is over: its place is free, or it waits no more. Who is let in next has the place at once. */
export function left(gate: Gate, run: string): ReturnType<typeof letIn> {
  const { row } = gate;
  const waits = row.queue.some((entry) => entry.run === run);
  const freed = waits ? { ...row, queue: row.queue.filter((entry) => entry.run !== run) } : { ...row, open: Math.max(0, row.open - 1), holder: row.holder === run ? null : row.holder };
  return letIn({ ...gate, row: freed });
}

/** Gives what room there is to those that wait. */
export function letIn(gate: Gate): { readonly row: GateRow; readonly next: readonly { readonly run: string; readonly tenant: string }[] } {
  const room = Math.max(0, Math.min(maxOf(gate) - gate.row.open, gate.row.queue.length));
  const next = gate.row.queue.slice(0, room);
  const holder = gate.name[0] === 'key' && next[0] !== undefined ? next[0].run : gate.row.holder;
  return { row: { ...gate.row, open: gate.row.open + room, holder, queue: gate.row.queue.slice(room) }, next: next.map(({ run, tenant }) => ({ run, tenant })) };
}

/** What two streams have in one row, together. */
export const together = (a: GateRow, b: GateRow): GateRow => ({ ...a, open: a.open + b.open, holder: a.holder ?? b.holder, queue: [...a.queue, ...b.queue].sort((x, y) => Number(y.front === true) - Number(x.front === true) || y.priority - x.priority || x.since - y.since) });

const maxOf = ({ name, limit }: Gate): number => (name[0] === 'key' ? 1 : (limit.openMax ?? Infinity));

/** Rates are counted up to a minute's worth. */
function refilled({ row, limit }: Gate, at: Instant): GateRow {
  if (limit.startsPerMinute === undefined) return row;
  const before = row.tokens ?? limit.startsPerMinute;
  const passed = Math.max(0, at - row.countedAt);
  return { ...row, tokens: Math.min(limit.startsPerMinute, before + (passed * limit.startsPerMinute) / MINUTE_MS), countedAt: at };
}

const refused = (reason: Refused['reason'], message: string, retryAt: Instant): Admitted => ({ admission: { kind: 'refused', reason, message, retryAt }, rows: new Map() });

const inWords = (name: GateName): string => (name[0] === 'key' ? `conversation ${name[2]}` : `${name[0]} ${name[1]}`);
