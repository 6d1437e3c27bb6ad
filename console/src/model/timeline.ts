import type { Effect, RunEvent, Step } from '../api/client.js';
import { eventWords, words } from './format.js';

/** One line of a run's story, in the order of time. */
export type Entry =
  | { readonly kind: 'step'; readonly at: string; readonly step: Step; readonly effect: Effect | null }
  | { readonly kind: 'event'; readonly at: string; readonly id: string; readonly title: string; readonly detail: string | null; readonly who: string | null; readonly tone: 'good' | 'bad' | 'warn' | 'quiet' };

type Data = { readonly [member: string]: unknown };
const isData = (value: unknown): value is Data => typeof value === 'object' && value !== null && !Array.isArray(value);
const text = (data: Data, name: string): string | null => (typeof data[name] === 'string' ? data[name] : null);
const nameIn = (data: Data): string | null => {
  const by = data['by'] ?? data['person'];
  return isData(by) ? text(by, 'name') : typeof by === 'string' ? by : null;
};

interface Telling {
  readonly title: string;
  readonly tone: 'good' | 'bad' | 'warn' | 'quiet';
  readonly detail?: (data: Data) => string | null;
}

const ending = (data: Data): string | null => (isData(data['ending']) ? words(text(data['ending'], 'status') ?? '') : null);
const reason = (data: Data): string | null => text(data, 'message') ?? text(data, 'because') ?? text(data, 'reason');

/** Events that tell something which no step shows. Recoveries first of all. */
const TELLS: Readonly<Record<string, Telling>> = {
  RunAccepted: { title: 'Run accepted', tone: 'quiet' },
  RunQueued: { title: 'Waits to be let in', tone: 'quiet', detail: reason },
  RunAdmitted: { title: 'Let in', tone: 'quiet' },
  LeaseGranted: { title: 'Taken up by a worker', tone: 'quiet', detail: (data) => (isData(data['lease']) ? text(data['lease'], 'worker') : null) },
  RunResumed: { title: 'Recovered: another worker took over', tone: 'warn', detail: (data) => [isData(data['lease']) ? text(data['lease'], 'worker') : null, typeof data['replayed'] === 'number' ? `${data['replayed']} steps replayed` : null, Array.isArray(data['refired']) && data['refired'].length > 0 ? `${data['refired'].length} tried again` : null].filter((part) => part !== null).join(', ') },
  RunForked: { title: 'Forked', tone: 'quiet', detail: (data) => text(data, 'run') },
  RunBlocked: { title: 'Outcome unknown', tone: 'bad', detail: (data) => `step ${String(data['step'])}: ${text(data, 'message') ?? ''}` },
  StepReleased: { title: 'May be tried again', tone: 'warn', detail: (data) => `step ${String(data['step'])}: ${text(data, 'because') ?? ''}` },
  IntentRejected: { title: 'Refused what the agent asked', tone: 'warn', detail: (data) => `${words(text(data, 'reason') ?? '')}: ${text(data, 'message') ?? ''}` },
  InputRefused: { title: 'Refused', tone: 'warn', detail: reason },
  RunPaused: { title: 'Held still', tone: 'warn', detail: reason },
  RunUnpaused: { title: 'Let go on', tone: 'quiet' },
  RunCancelRequested: { title: 'Cancellation asked for', tone: 'warn', detail: reason },
  RunStuck: { title: 'Stuck', tone: 'bad', detail: (data) => text(data, 'on') },
  RunQuarantined: { title: 'In quarantine', tone: 'bad', detail: reason },
  RunUnquarantined: { title: 'Out of quarantine', tone: 'quiet', detail: reason },
  BudgetNeared: { title: 'Near its budget', tone: 'warn', detail: (data) => text(data, 'budget') },
  SignalReceived: { title: 'Signal received', tone: 'quiet', detail: (data) => text(data, 'name') },
  RunCompensating: { title: 'What it did is being answered', tone: 'warn', detail: reason },
  RunCompensated: { title: 'Compensation ended', tone: 'warn', detail: (data) => words(text(data, 'status') ?? '') },
  RunFinished: { title: 'Run ended', tone: 'good', detail: ending },
  CaseOpened: { title: 'Case opened', tone: 'bad', detail: (data) => `step ${String(data['step'])}: ${text(data, 'message') ?? ''}` },
  CaseSettled: { title: 'Case settled', tone: 'good', detail: (data) => `step ${String(data['step'])}: ${isData(data['verdict']) ? words(text(data['verdict'], 'status') ?? '') : ''} by ${text(data, 'by') ?? ''}` },
  CaseEscalated: { title: 'Case escalated', tone: 'bad', detail: reason },
  DuplicateEffectDetected: { title: 'Happened twice', tone: 'bad', detail: reason },
  VerdictContradicted: { title: 'Two answers contradict each other', tone: 'bad', detail: reason },
  LateResultRecorded: { title: 'A late result was recorded', tone: 'warn', detail: (data) => `step ${String(data['step'])}` },
  PlanOpened: { title: 'Compensation plan opened', tone: 'warn', detail: (data) => (isData(data['cause']) ? text(data['cause'], 'message') : null) },
  CompensationEscalated: { title: 'A compensation needs somebody', tone: 'bad', detail: reason },
  PlanConcluded: { title: 'Compensation plan concluded', tone: 'good', detail: (data) => words(text(data, 'status') ?? '') },
};

/** Steps with their effects, and what happened to the run besides, as it came. */
export function timelineOf(steps: readonly Step[], effects: readonly Effect[], events: readonly RunEvent[]): Entry[] {
  const byStep = new Map(effects.map((effect) => [effect.step, effect]));
  const entries: Entry[] = steps.map((step) => ({ kind: 'step', at: step.askedAt, step, effect: byStep.get(step.step) ?? null }));
  for (const { type, time, id, data } of events) {
    const tells = TELLS[type];
    if (tells === undefined || !isData(data)) continue;
    const bad = type === 'RunFinished' && ending(data) !== 'completed';
    entries.push({ kind: 'event', at: time, id, title: tells.title, detail: tells.detail?.(data) ?? null, who: nameIn(data), tone: bad ? 'warn' : tells.tone });
  }
  // Sorting is stable: at one time, a step comes before what is said of it.
  return entries.sort((a, b) => a.at.localeCompare(b.at));
}

export const tellsOf = (type: string): string => TELLS[type]?.title ?? eventWords(type);
