/** How a figure of reliability is made: what pages, the description of the API and `docs/reference/figures.md` say of it. */
export interface FigureSpec {
  /** Its name in `GET /v1/figures`. */
  readonly name: string;
  /** Its names in the gateway's `/metrics`, each with a label `tenant`. */
  readonly metrics: readonly { readonly name: string; readonly help: string }[];
  /** Its names in a bucket of `series`. */
  readonly series: readonly string[];
  readonly formula: string;
  readonly events: readonly string[];
  readonly window: string;
  /** What a bad value means, and when it is one. */
  readonly reads: string;
}

const IN_WINDOW = 'events from `from` to `to`; in `/metrics` of the last hour';
const NOW = 'what is open now; in `series` at the end of each bucket';

export const FIGURES: readonly FigureSpec[] = [
  {
    name: 'recoveryMs',
    metrics: [
      { name: 'holdfast_recovery_seconds', help: 'From the last event of a run before a resume to the resume, by quantile' },
      { name: 'holdfast_recoveries', help: 'Resumes of runs' },
    ],
    series: ['recoveryP50Ms', 'resumed'],
    formula: 'time of a `RunResumed` − time of the event before it in the run’s stream: how long nobody advanced the run; `p50`, `p95`, `max` by nearest rank',
    events: ['RunResumed'],
    window: IN_WINDOW,
    reads: 'a few session time-outs of the workers’ group are usual; more means that no worker was there to take the lane',
  },
  {
    name: 'acceptedStateLoss',
    metrics: [{ name: 'holdfast_accepted_state_loss_events', help: 'Versions that are missing between two events of a run’s stream' }],
    series: ['acceptedStateLoss'],
    formula: 'Σ (version − version of the event before it in the run’s stream − 1)',
    events: ['all of run.events'],
    window: `${IN_WINDOW}; the later of the two events counts. A tail that was cut off can’t be seen from here: \`holdfast audit verify\` sees it`,
    reads: 'anything above 0 is loss of what was accepted',
  },
  {
    name: 'duplicateEffectRate',
    metrics: [
      { name: 'holdfast_duplicate_effects_ratio', help: 'Effects found to have happened twice, for each that succeeded' },
      { name: 'holdfast_duplicate_effects', help: 'Effects found to have happened twice' },
    ],
    series: ['duplicateEffectRate', 'duplicateEffects'],
    formula: '`DuplicateEffectDetected` ÷ `EffectSucceeded`',
    events: ['DuplicateEffectDetected', 'EffectSucceeded'],
    window: IN_WINDOW,
    reads: 'anything above 0: two proofs under one operation key; a person must look at the target',
  },
  {
    name: 'unknowns',
    metrics: [
      { name: 'holdfast_unknown_outcomes', help: 'Outcomes that nobody knows now' },
      { name: 'holdfast_unknown_outcome_oldest_seconds', help: 'Age of the oldest outcome that nobody knows' },
    ],
    series: ['unknownsOpen', 'unknownsOldestMs'],
    formula: 'cases that are open: `CaseOpened` without a `CaseSettled` of the same step after it; age = now − `since` of the case',
    events: ['CaseOpened', 'CaseSettled'],
    window: NOW,
    reads: 'runs stand still behind each; an age beyond the owner’s working hours means that nobody looks',
  },
  {
    name: 'successfulResumes',
    metrics: [{ name: 'holdfast_successful_resumes_ratio', help: 'Resumes after which the run went on' }],
    series: ['successfulResumes'],
    formula: '`RunResumed` with a later event in the run’s stream ÷ `RunResumed`',
    events: ['RunResumed', 'all of run.events'],
    window: IN_WINDOW,
    reads: 'below 1 for longer than a step takes: runs are granted and do not move',
  },
  {
    name: 'compensationBacklog',
    metrics: [
      { name: 'holdfast_compensation_backlog', help: 'Compensation plans that are open' },
      { name: 'holdfast_compensation_backlog_oldest_seconds', help: 'Age of the oldest compensation plan that is open' },
      { name: 'holdfast_compensation_failures', help: 'Effects that should not stand and do, since what answers them failed' },
      { name: 'holdfast_compensations_escalated', help: 'Compensations that were brought to people' },
    ],
    series: ['compensationsOpen', 'compensationsOldestMs', 'compensationsFailed'],
    formula: '`open`: `PlanOpened` without a `PlanConcluded` after it; `oldestMs`, `p50Ms`: now − time of the `PlanOpened`; `failed`: `CompensationSettled` with the standing `failed`; `escalated`: `CompensationEscalated`',
    events: ['PlanOpened', 'PlanConcluded', 'CompensationSettled', 'CompensationEscalated'],
    window: `\`open\` and ages: ${NOW}; \`failed\` and \`escalated\`: ${IN_WINDOW}`,
    reads: 'each open plan is something done that somebody wants answered; each failure stands until a person settles it',
  },
  {
    name: 'staleRejections',
    metrics: [{ name: 'holdfast_stale_rejections', help: 'Intents refused since their run had changed hands' }],
    series: ['staleRejections'],
    formula: '`IntentRejected` with the reason `stale_fence`',
    events: ['IntentRejected'],
    window: IN_WINDOW,
    reads: 'each is a worker that went on after it had lost its run, and was kept from doing harm; many mean workers that freeze, or a session time-out that is too short',
  },
  {
    name: 'verifiedOutcomes',
    metrics: [{ name: 'holdfast_verified_outcomes_ratio', help: 'Completed runs whose outcome was verified' }],
    series: ['verifiedOutcomes'],
    formula: '`RunFinished` completed and `verified` ÷ `RunFinished` completed',
    events: ['RunFinished'],
    window: IN_WINDOW,
    reads: 'what share of completed runs held their outcome against their success criteria',
  },
];

/** What the gateway’s `/metrics` says, in seconds and counts, is of so long. Milliseconds. */
export const METRICS_WINDOW_MS = 60 * 60 * 1000;
