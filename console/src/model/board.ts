import type { Figures } from '../api/client.js';
import { count, duration, percent } from './format.js';

/** One figure: what it says now, and the counts that it comes from, over time. */
export interface FigureView {
  readonly id: string;
  readonly name: string;
  readonly value: string;
  readonly says: string;
  /** False when somebody had better look. */
  readonly fine: boolean;
  /** Its own course first, then the counts that it comes from. */
  readonly lines: readonly Line[];
}

export interface Line {
  /** A member of each bucket. */
  readonly of: string;
  readonly name: string;
}

const MS = /Ms$/;
const SHARE = new Set(['duplicateEffectRate', 'successfulResumes', 'verifiedOutcomes']);

/** What a bucket says of a line, as people read it: seconds and percent. Null: nothing. */
export function pointOf(bucket: object, of: string): number | null {
  const value = (bucket as Readonly<Record<string, unknown>>)[of];
  if (typeof value !== 'number') return null;
  return MS.test(of) ? value / 1000 : SHARE.has(of) ? value * 100 : value;
}

/** Lines that the answer has: its own course where the gateway tells it, else counts. Those of one unit share a plot. */
export function linesIn(series: readonly object[], lines: readonly Line[]): Line[] {
  const [first] = series;
  const there = lines.filter(({ of }) => first !== undefined && of in first);
  const unit = (of: string): string => (MS.test(of) ? 's' : SHARE.has(of) ? '%' : '');
  const [own] = there;
  return own === undefined ? [] : there.filter(({ of }) => unit(of) === unit(own.of));
}

/** A backlog may be told as a number, or with an age, or not at all. */
function backlog(value: unknown): { readonly open: number | null; readonly oldestMs: number | null } {
  if (typeof value === 'number') return { open: value, oldestMs: null };
  if (typeof value !== 'object' || value === null) return { open: null, oldestMs: null };
  const { open, oldestMs } = value as { open?: unknown; oldestMs?: unknown };
  return { open: typeof open === 'number' ? open : null, oldestMs: typeof oldestMs === 'number' ? oldestMs : null };
}

/** Figures as they are read; what is missing in an older gateway's answer is not counted. */
export type FiguresRead = Omit<Figures, 'figures'> & { readonly figures: Omit<Figures['figures'], 'compensationBacklog'> };

/** The eight reliability figures. */
export function figureViews({ figures }: Pick<FiguresRead, 'figures'>): FigureView[] {
  const { recoveryMs, acceptedStateLoss, duplicateEffectRate, unknowns, successfulResumes, staleRejections, verifiedOutcomes } = figures;
  const open = backlog((figures as { compensationBacklog?: unknown }).compensationBacklog);
  return [
    { id: 'recovery', name: 'Recovery time', value: recoveryMs.p95 === null ? '–' : duration(recoveryMs.p95), says: recoveryMs.count === 0 ? 'No run had to be recovered.' : `95 of 100 runs went on within this; half within ${duration(recoveryMs.p50 ?? 0)}, ${count(recoveryMs.count)} in all.`, fine: true, lines: [{ of: 'recoveryP50Ms', name: 'half within, s' }, { of: 'resumed', name: 'recoveries' }] },
    { id: 'loss', name: 'Accepted state lost', value: count(acceptedStateLoss), says: acceptedStateLoss === 0 ? 'Every event that was accepted is there.' : 'Events are missing in streams of runs: run “holdfast audit verify”.', fine: acceptedStateLoss === 0, lines: [{ of: 'acceptedStateLoss', name: 'events lost' }, { of: 'accepted', name: 'runs accepted' }] },
    { id: 'duplicates', name: 'Effects that happened twice', value: percent(duplicateEffectRate), says: duplicateEffectRate === null ? 'No effect so far.' : duplicateEffectRate === 0 ? 'None did.' : 'Share of effects that succeeded. Look for “Happened twice” in runs.', fine: (duplicateEffectRate ?? 0) === 0, lines: [{ of: 'duplicateEffectRate', name: 'happened twice, %' }, { of: 'duplicateEffects', name: 'happened twice' }] },
    { id: 'unknowns', name: 'Outcomes nobody knows', value: count(unknowns.open), says: unknowns.open === 0 ? 'Every outcome is known.' : `Open now; the oldest for ${duration(unknowns.oldestMs ?? 0)}.`, fine: unknowns.open === 0, lines: [{ of: 'unknownsOpen', name: 'open' }, { of: 'casesOpened', name: 'cases opened' }, { of: 'casesSettled', name: 'cases settled' }] },
    { id: 'resumes', name: 'Recoveries that went on', value: percent(successfulResumes), says: successfulResumes === null ? 'No run had to be recovered.' : 'Share of recovered runs of which something was heard afterwards.', fine: (successfulResumes ?? 1) === 1, lines: [{ of: 'successfulResumes', name: 'went on, %' }, { of: 'resumed', name: 'recoveries' }, { of: 'blocked', name: 'runs blocked' }] },
    { id: 'backlog', name: 'Compensations left to do', value: count(open.open), says: open.open === null ? 'Not counted by this gateway.' : open.open === 0 ? 'Nothing is left to answer.' : open.oldestMs === null ? 'Plans are open.' : `Open now; the oldest for ${duration(open.oldestMs)}.`, fine: (open.open ?? 0) === 0, lines: [{ of: 'compensationsOpen', name: 'plans open' }, { of: 'compensationsFailed', name: 'compensations failed' }, { of: 'endedOtherwise', name: 'runs that ended otherwise' }] },
    { id: 'stale', name: 'Stale workers refused', value: count(staleRejections), says: staleRejections === 0 ? 'No worker acted on a run that it had lost.' : 'Workers that had lost a run tried to go on with it, and were refused.', fine: true, lines: [{ of: 'staleRejections', name: 'refused' }] },
    { id: 'verified', name: 'Verified outcomes', value: percent(verifiedOutcomes), says: verifiedOutcomes === null ? 'No run has completed.' : 'Share of completed runs whose success was verified.', fine: true, lines: [{ of: 'verifiedOutcomes', name: 'verified, %' }, { of: 'completed', name: 'completed' }] },
  ];
}

/** Times of day for spans of up to two days, days for longer ones. */
export const tick = (at: string, spanMs: number, locale?: string): string => new Intl.DateTimeFormat(locale, spanMs <= 2 * 86_400_000 ? { hour: '2-digit', minute: '2-digit' } : { month: 'short', day: 'numeric' }).format(new Date(at));
