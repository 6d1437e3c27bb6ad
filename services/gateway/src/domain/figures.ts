import type { Json } from '@holdfast/protocol';

/** What an event counts as in figures: its type, or how a run ended, or why an intent was refused. */
export type Counted = 'RunAccepted' | 'RunResumed' | 'RunBlocked' | 'CaseOpened' | 'CaseSettled' | 'DuplicateEffectDetected' | 'EffectSucceeded' | 'completed' | 'verified' | 'ended_otherwise' | 'stale';
const BY_TYPE: ReadonlySet<string> = new Set<Counted>(['RunAccepted', 'RunResumed', 'RunBlocked', 'CaseOpened', 'CaseSettled', 'DuplicateEffectDetected', 'EffectSucceeded']);

export function countsAs(type: string, data: Json): Counted | null {
  if (BY_TYPE.has(type)) return type as Counted;
  if (type === 'IntentRejected') return member(data, 'reason') === 'stale_fence' ? 'stale' : null;
  if (type !== 'RunFinished') return null;
  const ending = member(data, 'ending') ?? null;
  if (member(ending, 'status') !== 'completed') return 'ended_otherwise';
  return member(ending, 'verified') === true ? 'verified' : 'completed';
}

const member = (value: Json, name: string): Json | undefined => (typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as { readonly [member: string]: Json })[name] : undefined);

/** One figure of how reliably runs fare: what it is made of stands in `docs/how-to/use-the-http-api.md`. */
export interface Counts {
  /** Events missing between those that streams hold. */
  readonly missing: number;
  readonly recoveriesMs: readonly number[];
  readonly resumed: number;
  /** Resumed runs of which something was heard afterwards. */
  readonly wentOn: number;
  readonly succeededEffects: number;
  readonly duplicateEffects: number;
  readonly staleRejections: number;
  readonly completed: number;
  readonly verified: number;
  readonly openUnknownSince: readonly number[];
}

export interface Figures {
  readonly recoveryMs: { readonly count: number; readonly p50: number | null; readonly p95: number | null; readonly max: number | null };
  readonly acceptedStateLoss: number;
  readonly duplicateEffectRate: number | null;
  readonly unknowns: { readonly open: number; readonly oldestMs: number | null; readonly p50Ms: number | null };
  readonly successfulResumes: number | null;
  readonly staleRejections: number;
  readonly verifiedOutcomes: number | null;
}

const rate = (part: number, whole: number): number | null => (whole === 0 ? null : part / whole);

/** The nearest-rank percentile; null of nothing. */
export function percentile(values: readonly number[], share: number): number | null {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? null;
}

export function figuresOf(counts: Counts, now: number): Figures {
  const ages = counts.openUnknownSince.map((since) => Math.max(0, now - since));
  return {
    recoveryMs: { count: counts.recoveriesMs.length, p50: percentile(counts.recoveriesMs, 0.5), p95: percentile(counts.recoveriesMs, 0.95), max: percentile(counts.recoveriesMs, 1) },
    acceptedStateLoss: counts.missing,
    duplicateEffectRate: rate(counts.duplicateEffects, counts.succeededEffects),
    unknowns: { open: ages.length, oldestMs: percentile(ages, 1), p50Ms: percentile(ages, 0.5) },
    successfulResumes: rate(counts.wentOn, counts.resumed),
    staleRejections: counts.staleRejections,
    verifiedOutcomes: rate(counts.verified, counts.completed),
  };
}
