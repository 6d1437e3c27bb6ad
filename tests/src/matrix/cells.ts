import type { EffectClass } from '@holdfast/protocol';

export const DELIVERIES = ['once', 'doubled', 'reordered'] as const;
export type Delivery = (typeof DELIVERIES)[number];
export const EFFECTS = ['pure', 'idempotent', 'irreversible'] as const satisfies readonly EffectClass[];
export const VICTIMS = ['orchestrator', 'ledger', 'reconciliation', 'compensation', 'worker'] as const;
export type Victim = (typeof VICTIMS)[number];

/** A process dies while a run of its own is at a boundary. */
export interface CrashCell {
  readonly name: string;
  readonly victim: Victim;
  /** The boundary: cells of one boundary die together. */
  readonly boundary: string;
  readonly point: string;
  /** What the run must have in hand there. */
  readonly about: string;
  readonly effect: EffectClass;
  readonly tool: string;
  readonly doubt: boolean;
  /** What the run did is answered at its end; the class, the doubt and, but for the service's own, the boundary are those of the answer. */
  readonly answered: boolean;
  readonly delivery: Delivery;
}

/** A boundary that a class of effects never comes to. */
export interface NoCell {
  readonly name: string;
  readonly because: string;
}

interface Boundary {
  readonly victim: Victim;
  readonly point: string;
  readonly about: string;
  /** By effect class: the tool called, or why the boundary isn't there. */
  readonly tools: Readonly<Record<EffectClass, string | { readonly not: string }>>;
  readonly doubt?: boolean;
  readonly answered?: boolean;
}

const GRANTED = { pure: 'pure-granted', idempotent: 'idempotent-granted', irreversible: 'irreversible-granted' } as const;
const LOCAL = { pure: 'pure-local', idempotent: 'idempotent-local', irreversible: { not: 'an irreversible effect is never fired locally' } } as const;
const CASES = { pure: { not: 'a read applies nothing: it has no unknown outcome and no case' }, idempotent: 'idempotent-once', irreversible: 'irreversible-granted' } as const;
const free = { not: 'what may fire again is fired without waiting for a commit' };
const COMMITTED = { pure: free, idempotent: free, irreversible: 'irreversible-granted' } as const;

const SERVICE_POINTS = ['before-commit', 'after-commit', 'before-publish', 'after-publish'] as const;
/** What each service decides on the way of an intent. */
const MOMENTS = {
  orchestrator: ['RunAccepted', 'EffectRequested', 'EffectSettled', 'RunFinished'],
  ledger: ['EffectDispatched', 'EffectSucceeded', 'EffectOutcomeUnknown'],
  reconciliation: ['CaseOpened', 'ProbeSent', 'CaseSettled'],
} as const;

const ofService = (victim: keyof typeof MOMENTS): Boundary[] =>
  MOMENTS[victim].flatMap((about) => {
    const doubt = victim === 'reconciliation' || about === 'EffectOutcomeUnknown';
    // The worker's own word on a success may come before the ledger's, which then is nothing new: but not where it was in doubt.
    const told = about === 'EffectSettled';
    const tools = doubt ? CASES : told ? { ...CASES, pure: { not: 'a read is never in doubt, and the worker’s own word on its success may come before the ledger’s' } } : GRANTED;
    return SERVICE_POINTS.map((point) => ({ victim, point: `${victim}.${point}`, about, tools, doubt: doubt || told }));
  });

/** Runs whose effects are fired by their worker, so that whatever is granted and reported is what answers them. */
const ANSWERED = { pure: { not: 'a read answers nothing' }, idempotent: 'answered-idempotent', irreversible: 'answered-irreversible' } as const;
/** What is decided, fired and settled on the way of a plan. */
const ANSWERING = {
  compensation: ['CompensationRegistered', 'PlanOpened', 'CompensationOrdered', 'CompensationNoted', 'VerificationConcluded', 'PlanConcluded'],
  orchestrator: ['WaitStarted', 'WaitEnded'],
  ledger: ['EffectDispatched', 'EffectOutcomeUnknown'],
  reconciliation: ['CaseOpened', 'CaseSettled'],
} as const;

const ofPlan = (victim: keyof typeof ANSWERING): Boundary[] =>
  ANSWERING[victim].flatMap((about) => {
    const doubt = victim === 'reconciliation' || about === 'EffectOutcomeUnknown';
    // One attempt only makes a case of a doubt where the call may be repeated.
    const tools = doubt ? { ...ANSWERED, idempotent: 'answered-once' } : ANSWERED;
    return SERVICE_POINTS.map((point) => ({ victim, point: `${victim}.${point}`, about, tools, doubt, answered: true }));
  });

const answering = (point: string, about: string, tools: Boundary['tools'] = ANSWERED, doubt = false): Boundary => ({ victim: 'worker', point, about, tools, doubt, answered: true });

const worker = (point: string, about: string, tools: Boundary['tools'], doubt = false): Boundary => ({ victim: 'worker', point, about, tools, doubt });

const BOUNDARIES: readonly Boundary[] = [
  ...ofService('orchestrator'),
  ...ofService('ledger'),
  ...ofService('reconciliation'),
  ...['before-publish', 'after-publish'].flatMap((point) => [
    worker(`worker.${point}`, 'CallTool', GRANTED),
    worker(`worker.${point}`, 'EffectReported', GRANTED),
    worker(`worker.${point}`, 'FinishRun', GRANTED),
  ]),
  worker('host.before-commit', '1', COMMITTED),
  worker('host.after-commit', '1', COMMITTED),
  worker('host.before-call', '1', GRANTED),
  worker('host.after-call', '1', GRANTED),
  worker('host.after-report', '1', GRANTED),
  worker('local.before-call', '1', LOCAL),
  worker('local.after-call', '1', LOCAL),
  worker('host.before-probe', '1', CASES, true),
  worker('host.after-probe', '1', CASES, true),
  ...ofPlan('compensation'),
  ...ofPlan('orchestrator'),
  ...ofPlan('ledger'),
  ...ofPlan('reconciliation'),
  ...['before-publish', 'after-publish'].map((point) => answering(`worker.${point}`, 'EffectReported')),
  ...['before-commit', 'after-commit'].map((point) => answering(`host.${point}`, '1~1', { ...ANSWERED, idempotent: free })),
  ...['before-call', 'after-call', 'after-report'].map((point) => answering(`host.${point}`, '1~1')),
  ...['before-probe', 'after-probe'].map((point) => answering(`host.${point}`, '1~1', { ...ANSWERED, idempotent: 'answered-once' }, true)),
];

/** Every process × boundary × effect class × delivery, with those that can't be and why. */
export function crashCells(): { readonly cells: CrashCell[]; readonly none: NoCell[] } {
  const cells: CrashCell[] = [];
  const none: NoCell[] = [];
  for (const { victim, point, about, tools, doubt = false, answered = false } of BOUNDARIES) {
    const boundary = `${point} ${about === '1' ? 'call' : about === '1~1' ? 'answer' : answered && victim !== 'compensation' ? `${about} of an answer` : about}`;
    for (const effect of EFFECTS) {
      const tool = tools[effect];
      if (typeof tool !== 'string') none.push({ name: `${boundary} ${effect}`, because: tool.not });
      else for (const delivery of DELIVERIES) cells.push({ name: `${boundary} ${effect} ${delivery}`, victim, boundary, point, about, effect, tool, doubt, answered, delivery });
    }
  }
  return { cells, none };
}
