import type { Json } from '@holdfast/protocol';

/** What an event counts as in figures: its type, or how a run ended, or why an intent was refused. */
type ByType = 'RunAccepted' | 'RunResumed' | 'RunBlocked' | 'CaseOpened' | 'CaseSettled' | 'DuplicateEffectDetected' | 'EffectSucceeded' | 'PlanOpened' | 'PlanConcluded' | 'CompensationEscalated';
export type Counted = ByType | 'completed' | 'verified' | 'ended_otherwise' | 'stale' | 'compensation_failed';
const BY_TYPE: ReadonlySet<string> = new Set<ByType>(['RunAccepted', 'RunResumed', 'RunBlocked', 'CaseOpened', 'CaseSettled', 'DuplicateEffectDetected', 'EffectSucceeded', 'PlanOpened', 'PlanConcluded', 'CompensationEscalated']);

export function countsAs(type: string, data: Json): Counted | null {
  if (BY_TYPE.has(type)) return type as Counted;
  if (type === 'IntentRejected') return member(data, 'reason') === 'stale_fence' ? 'stale' : null;
  if (type === 'CompensationSettled') return member(member(data, 'standing') ?? null, 'standing') === 'failed' ? 'compensation_failed' : null;
  if (type !== 'RunFinished') return null;
  const ending = member(data, 'ending') ?? null;
  if (member(ending, 'status') !== 'completed') return 'ended_otherwise';
  return member(ending, 'verified') === true ? 'verified' : 'completed';
}

const member = (value: Json, name: string): Json | undefined => (typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as { readonly [member: string]: Json })[name] : undefined);

/** Something that lasted, or lasts: `until` is null where it is not over. Epoch milliseconds. */
export interface Interval {
  readonly since: number;
  readonly until: number | null;
}

/** How long a run stood still before a resume, and whether anything was heard of it afterwards. */
export interface Recovery {
  readonly at: number;
  readonly ms: number;
  readonly wentOn: boolean;
}

/** What figures are made of: how each is, stands in `figure-list.ts`. */
export interface Counts {
  readonly counted: ReadonlyMap<Counted, number>;
  readonly recoveries: readonly Recovery[];
  /** Events missing between those that streams hold, with when it shows. */
  readonly gaps: readonly { readonly at: number; readonly missing: number }[];
  /** Cases that were open at some time of the window. */
  readonly unknowns: readonly Interval[];
  /** Since when each outcome that nobody knows now is not known. */
  readonly openUnknownSince: readonly number[];
  /** Compensation plans that were open at some time of the window. */
  readonly plans: readonly Interval[];
}

export interface Figures {
  readonly recoveryMs: { readonly count: number; readonly p50: number | null; readonly p95: number | null; readonly max: number | null };
  readonly acceptedStateLoss: number;
  readonly duplicateEffectRate: number | null;
  readonly unknowns: { readonly open: number; readonly oldestMs: number | null; readonly p50Ms: number | null };
  readonly successfulResumes: number | null;
  readonly compensationBacklog: { readonly open: number; readonly oldestMs: number | null; readonly p50Ms: number | null; readonly failed: number; readonly escalated: number };
  readonly staleRejections: number;
  readonly verifiedOutcomes: number | null;
}

const rate = (part: number, whole: number): number | null => (whole === 0 ? null : part / whole);

/** The nearest-rank percentile; null of nothing. */
export function percentile(values: readonly number[], share: number): number | null {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? null;
}

/** Ages of what is open at an instant. */
const agesAt = (intervals: readonly Interval[], at: number): number[] => intervals.flatMap(({ since, until }) => (since < at && (until === null || until >= at) ? [at - since] : []));

const recoveryOf = (recoveries: readonly Recovery[]): number[] => recoveries.map(({ ms }) => ms);
const completedOf = (of: (what: Counted) => number): number => of('completed') + of('verified');
const sumOf = (gaps: Counts['gaps']): number => gaps.reduce((sum, { missing }) => sum + missing, 0);
const resumedWell = (recoveries: readonly Recovery[]): number | null => rate(recoveries.filter(({ wentOn }) => wentOn).length, recoveries.length);

/** `at`: the instant for which what is open is told. */
export function figuresOf({ counted, recoveries, gaps, plans, openUnknownSince }: Counts, at: number): Figures {
  const of = (what: Counted): number => counted.get(what) ?? 0;
  const waited = recoveryOf(recoveries);
  const ages = openUnknownSince.map((since) => Math.max(0, at - since));
  const open = agesAt(plans, at);
  return {
    recoveryMs: { count: waited.length, p50: percentile(waited, 0.5), p95: percentile(waited, 0.95), max: percentile(waited, 1) },
    acceptedStateLoss: sumOf(gaps),
    duplicateEffectRate: rate(of('DuplicateEffectDetected'), of('EffectSucceeded')),
    unknowns: { open: ages.length, oldestMs: percentile(ages, 1), p50Ms: percentile(ages, 0.5) },
    successfulResumes: resumedWell(recoveries),
    compensationBacklog: { open: open.length, oldestMs: percentile(open, 1), p50Ms: percentile(open, 0.5), failed: of('compensation_failed'), escalated: of('CompensationEscalated') },
    staleRejections: of('stale'),
    verifiedOutcomes: rate(of('verified'), completedOf(of)),
  };
}

/** A stretch of the window. */
export interface Bucket {
  readonly from: number;
  readonly to: number;
  readonly counted: ReadonlyMap<Counted, number>;
}

/** The figures of one bucket: of what happened in it, and of what was open at its end. */
export function pointOf({ from, to, counted }: Bucket, { recoveries, gaps, unknowns, plans }: Counts) {
  const of = (what: Counted): number => counted.get(what) ?? 0;
  const within = <T extends { readonly at: number }>(all: readonly T[]): T[] => all.filter(({ at }) => at >= from && at < to);
  const resumed = within(recoveries);
  const unknown = agesAt(unknowns, to);
  const compensating = agesAt(plans, to);
  return {
    ...{ accepted: of('RunAccepted'), completed: completedOf(of), endedOtherwise: of('ended_otherwise'), resumed: of('RunResumed'), blocked: of('RunBlocked') },
    ...{ casesOpened: of('CaseOpened'), casesSettled: of('CaseSettled'), duplicateEffects: of('DuplicateEffectDetected'), staleRejections: of('stale') },
    recoveryP50Ms: percentile(recoveryOf(resumed), 0.5),
    acceptedStateLoss: sumOf(within(gaps)),
    duplicateEffectRate: rate(of('DuplicateEffectDetected'), of('EffectSucceeded')),
    ...{ unknownsOpen: unknown.length, unknownsOldestMs: percentile(unknown, 1) },
    successfulResumes: resumedWell(resumed),
    ...{ compensationsOpen: compensating.length, compensationsOldestMs: percentile(compensating, 1), compensationsFailed: of('compensation_failed') },
    verifiedOutcomes: rate(of('verified'), completedOf(of)),
  };
}
