import { Instant, isoTime, type Outcome, type ToolContract } from '@holdfast/protocol';
import { z } from 'zod';

/**
 * How a tool's target is doing, as a row that spans lanes: read and written under its lock.
 * `failures` counts failures in a row; the circuit is open while `openedAt` is set, and then one
 * trial after the other is let through. `limit` is the number of attempts that may be under way at
 * once; it is halved by each "overloaded" and grows by one for each `limit` successes.
 */
export const ToolHealth = z.object({
  failures: z.number().int(),
  openedAt: Instant.nullable(),
  trials: z.number().int(),
  /** The target asked for quiet, or the next trial is due then. */
  quietUntil: Instant,
  limit: z.number().nullable(),
  /** Attempts under way, with the time by which each is over; counted only while there is a limit or an open circuit. */
  busy: z.record(z.string(), Instant),
});
export type ToolHealth = z.infer<typeof ToolHealth>;

export type Gate = { readonly open: true } | { readonly open: false; readonly because: 'circuit_open' | 'no_free_place' | 'paused'; readonly message: string; readonly lookAgainAt: Instant };

export const openGate: Gate = { open: true };

type Limits = Pick<ToolContract, 'concurrencyMax' | 'breaker'>;

const BREAKER = { failures: 5, initialMs: 1000, maxMs: 60_000 };
/** Where a target without a declared limit first says that it is overloaded, this many are let through; beyond the other, all are again. */
const ADAPTIVE_LIMIT_FIRST = 16;
const ADAPTIVE_LIMIT_LAST = 256;
const LOOK_AGAIN_MS = 200;

export const newHealth = ({ concurrencyMax }: Limits): ToolHealth => ({ failures: 0, openedAt: null, trials: 0, quietUntil: 0, limit: concurrencyMax ?? null, busy: {} });

/** Whether nothing has to be asked before an attempt is sent: no failure, no limit, no wish to be left alone. */
export const isCalm = ({ failures, openedAt, limit, quietUntil }: ToolHealth, at: Instant): boolean => failures === 0 && openedAt === null && limit === null && at >= quietUntil;

/** Whether an attempt may be sent now. */
export function gateOf(health: ToolHealth, tool: string, at: Instant): Gate {
  const { openedAt, quietUntil, limit, failures } = health;
  const underWay = running(health, at).length;
  if (at < quietUntil) {
    const message = openedAt === null ? `the target of ${tool} asked to be left alone until ${isoTime(quietUntil)}` : `the circuit of ${tool} is open since ${isoTime(openedAt)} after ${failures} failures in a row; the next trial is at ${isoTime(quietUntil)}`;
    return { open: false, because: 'circuit_open', message, lookAgainAt: quietUntil };
  }
  if (openedAt !== null && underWay > 0) return { open: false, because: 'circuit_open', message: `the circuit of ${tool} is open since ${isoTime(openedAt)}; a trial is under way`, lookAgainAt: at + LOOK_AGAIN_MS };
  if (limit !== null && underWay >= Math.floor(limit)) {
    return { open: false, because: 'no_free_place', message: `all ${Math.floor(limit)} places of ${tool} are taken`, lookAgainAt: at + LOOK_AGAIN_MS };
  }
  return openGate;
}

/** An attempt was sent. `until`: when it is over even if nobody reports its end. */
export const started = (health: ToolHealth, attempt: string, until: Instant): ToolHealth =>
  health.limit === null && health.openedAt === null ? health : { ...health, busy: { ...health.busy, [attempt]: until } };

/** The places of both. */
export const together = (health: ToolHealth, { busy }: ToolHealth): ToolHealth => ({ ...health, busy: { ...health.busy, ...busy } });

/** What an attempt's end says about the target. `neither`: nothing, since the target was not asked or not at fault. */
export type TargetSays = 'well' | 'failing' | 'overloaded' | 'neither';

export function targetSays(outcome: Outcome): TargetSays {
  switch (outcome.status) {
    case 'succeeded':
    case 'rejected':
      return 'well';
    case 'unknown':
      return outcome.cause === 'accepted' ? 'well' : outcome.cause === 'deadline' || outcome.cause === 'may_have_applied' ? 'failing' : 'neither';
    case 'failed':
      if (outcome.failure.class === 'overloaded') return 'overloaded';
      return outcome.failure.class === 'transient' && outcome.evidence.kind !== 'ledger' ? 'failing' : 'neither';
    default:
      return 'neither';
  }
}

/** An attempt is over. `jitter` in [0, 1) spreads the next trial. */
export function ended(health: ToolHealth, { concurrencyMax, breaker }: Limits, attempt: string, says: TargetSays, at: Instant, jitter: number, retryAfterMs = 0): ToolHealth {
  const { [attempt]: _, ...others } = health.busy;
  const next: ToolHealth = { ...health, busy: Object.fromEntries(Object.entries(others).filter(([, until]) => until > at)) };
  const quietUntil = Math.max(health.quietUntil, retryAfterMs > 0 ? at + retryAfterMs : 0);
  switch (says) {
    case 'neither':
      return next;
    case 'well':
      return { ...next, failures: 0, openedAt: null, trials: 0, quietUntil: health.openedAt === null ? health.quietUntil : 0, limit: grown(health.limit, concurrencyMax) };
    case 'overloaded': {
      const limit = Math.max(1, health.limit === null ? ADAPTIVE_LIMIT_FIRST : health.limit / 2);
      return paused({ ...next, quietUntil, limit }, health, breaker, at, jitter);
    }
    case 'failing': {
      const failures = health.failures + 1;
      const counted = { ...next, failures, quietUntil };
      if (health.openedAt !== null) return paused(counted, health, breaker, at, jitter);
      return failures < (breaker?.failures ?? BREAKER.failures) ? counted : paused({ ...counted, openedAt: at }, health, breaker, at, jitter);
    }
    default:
      return next;
  }
}

/** The pause before the next trial of an open circuit. Attempts that were under way when it opened end one by one; only a trial's end lengthens it. */
function paused(next: ToolHealth, before: ToolHealth, breaker: Limits['breaker'], at: Instant, jitter: number): ToolHealth {
  if (next.openedAt === null || (before.openedAt !== null && at < before.quietUntil)) return next;
  const { initialMs, maxMs } = { ...BREAKER, ...defined(breaker) };
  const pauseMs = Math.min(maxMs, initialMs * 2 ** Math.min(30, before.trials)) * (0.5 + jitter / 2);
  return { ...next, trials: before.trials + 1, quietUntil: Math.max(next.quietUntil, Math.round(at + pauseMs)) };
}

const running = ({ busy }: ToolHealth, at: Instant): string[] => Object.keys(busy).filter((attempt) => (busy[attempt] ?? 0) > at);

function grown(limit: number | null, declared: number | undefined): number | null {
  if (limit === null) return null;
  const next = limit + 1 / Math.max(1, limit);
  if (declared !== undefined) return Math.min(declared, next);
  return next > ADAPTIVE_LIMIT_LAST ? null : next;
}

const defined = <T extends object>(members: T | undefined): { [K in keyof T]?: Exclude<T[K], undefined> } =>
  Object.fromEntries(Object.entries(members ?? {}).filter(([, value]) => value !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> };
