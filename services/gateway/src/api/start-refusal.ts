import { StartRefused, type Json, type MessageOf } from '@holdfast/protocol';
import { Problem, type ProblemCode } from '../http/problem.js';
import { iso } from './shapes.js';

type Reason = MessageOf<typeof StartRefused>['data']['reason'];

/** A conversation that has a run is a conflict with that run; limits on how many and how often want the asker to come back. */
const CODES: Readonly<Record<Reason, ProblemCode>> = { concurrent_run: 'refused', limit_reached: 'no-room', rate_limited: 'no-room', queue_full: 'no-room' };

export interface RefusedStart {
  readonly code: ProblemCode;
  readonly message: string;
  /** From when on it may be asked again, epoch milliseconds; null: never so. */
  readonly retryAt: number | null;
  /** Members of the problem. */
  readonly extra: Readonly<Record<string, unknown>>;
}

/** What an event says of a start that came to nothing; null for any other event. */
export function refusedStart(type: string, data: { readonly [member: string]: Json }): RefusedStart | null {
  if (type !== StartRefused.type && (type !== 'IntentRejected' || data['intent'] !== 'StartRun')) return null;
  const parsed = type === StartRefused.type ? StartRefused.schema.safeParse(data) : null;
  // A reason that only another version of the orchestrator knows is one all the same.
  if (parsed?.success !== true) return { code: 'refused', message: String(data['message']), retryAt: null, extra: { reason: data['reason'] } };
  const { reason, message, retryAt, holder } = parsed.data;
  return { code: CODES[reason], message, retryAt, extra: { reason, retryAt: iso(retryAt), ...(holder === undefined ? {} : { holder }) } };
}

/** What the asker is answered. `now`: epoch milliseconds. */
export function startProblem({ code, message, retryAt, extra }: RefusedStart, now: number): Problem {
  return new Problem(code, message, { extra, ...(retryAt === null ? {} : { headers: { 'retry-after': String(Math.max(1, Math.ceil((retryAt - now) / 1000))) } }) });
}
