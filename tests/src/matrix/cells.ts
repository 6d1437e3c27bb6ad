import type { EffectClass } from '@holdfast/protocol';

export const DELIVERIES = ['once', 'doubled', 'reordered'] as const;
export type Delivery = (typeof DELIVERIES)[number];
export const EFFECTS = ['pure', 'idempotent', 'irreversible'] as const satisfies readonly EffectClass[];
export const VICTIMS = ['orchestrator', 'ledger', 'reconciliation', 'compensation', 'worker', 'gateway'] as const;
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
  /** The run fails after its calls, and all of them have to be answered. */
  readonly back: boolean;
  /** The run records work and waits: for what comes, or until it is cancelled. */
  readonly waits: Waits | null;
  readonly delivery: Delivery;
}

export type Waits = 'answered' | 'cancelled';

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
  readonly back?: boolean;
  readonly waits?: Waits;
}

const GRANTED = { pure: 'pure-granted', idempotent: 'idempotent-granted', irreversible: 'irreversible-granted' } as const;
const LOCAL = { pure: 'pure-local', idempotent: 'idempotent-local', irreversible: { not: 'an irreversible effect is never fired locally' } } as const;
const CASES = { pure: { not: 'a read applies nothing: it has no unknown outcome and no case' }, idempotent: 'idempotent-once', irreversible: 'irreversible-granted' } as const;
const nothing = { not: 'a read applies nothing, so nothing answers it' };
const ANSWERED = { pure: nothing, idempotent: 'idempotent-answered', irreversible: 'irreversible-answered' } as const;
const ANSWERED_IN_DOUBT = { pure: nothing, idempotent: 'idempotent-answered-once', irreversible: 'irreversible-answered' } as const;
/** The first answer of a run of two calls: the last is answered first. */
const ANSWER = '2~1';
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

/** What each service decides on the way back of a run that failed. */
const WAY_BACK = {
  orchestrator: ['RunCompensating', 'RunCompensated'],
  ledger: [`EffectDispatched/${ANSWER}`, `EffectSucceeded/${ANSWER}`],
  compensation: ['CompensationRegistered', 'EffectNoted', 'PlanOpened', 'CompensationOrdered', 'CompensationNoted', 'VerificationAsked', 'VerificationConcluded', 'CompensationSettled', 'PlanConcluded'],
} as const;
/** The same where the answer's own answer is lost: only there nobody knows at first what became of it. */
const WAY_BACK_IN_DOUBT = {
  ledger: [`EffectOutcomeUnknown/${ANSWER}`],
  reconciliation: [`CaseOpened/${ANSWER}`, `ProbeSent/${ANSWER}`, `CaseSettled/${ANSWER}`],
} as const;

const wayBack = (moments: Readonly<Partial<Record<Victim, readonly string[]>>>, tools: Boundary['tools'], doubt: boolean): Boundary[] =>
  Object.entries(moments).flatMap(([victim, abouts]) => abouts.flatMap((about) => SERVICE_POINTS.map((point) => ({ victim: victim as Victim, point: `${victim}.${point}`, about, tools, doubt, back: true }))));

const oneForAll = { not: 'a wait and recorded work are no effects: the runs of one class stand for all' };
const WAITING = { pure: oneForAll, idempotent: oneForAll, irreversible: 'irreversible-granted' } as const;
/** What the orchestrator decides of a run that records work, waits for a signal and an approval, and goes on with each; and of one that is cancelled meanwhile. */
const ON_THE_WAY = {
  answered: ['StepRecorded', 'WaitStarted', 'RunReleased', 'SignalReceived', 'ApprovalDecided', 'WaitEnded', 'RunResumed'],
  cancelled: ['RunCancelRequested'],
} as const;
const waiting = (): Boundary[] =>
  (['answered', 'cancelled'] as const).flatMap((waits) => ON_THE_WAY[waits].flatMap((about) => SERVICE_POINTS.map((point): Boundary => ({ victim: 'orchestrator', point: `orchestrator.${point}`, about, tools: WAITING, waits }))));

/** What the gateway is asked for, shows and tells of such runs, all of which reach it and nobody else. */
const gateway = (): Boundary[] => {
  const of = (waits: Waits, point: string, about: string): Boundary => ({ victim: 'gateway', point: `gateway.${point}`, about, tools: WAITING, waits });
  const asked = ['before-publish', 'after-publish'].flatMap((point) => [...['StartRun', 'SignalRun', 'DecideApproval'].map((about) => of('answered', point, about)), of('cancelled', point, 'CancelRun')]);
  const shown = ['before-commit', 'after-commit'].flatMap((point) => ['RunAccepted', 'EffectSucceeded', 'WaitStarted', 'RunFinished'].map((about) => of('answered', point, about)));
  return [...asked, ...shown, ...['before-post', 'after-post'].map((point) => of('answered', point, 'RunFinished'))];
};

const worker = (point: string, about: string, tools: Boundary['tools'], doubt = false): Boundary => ({ victim: 'worker', point, about, tools, doubt });
const COMMITTED_BACK = { pure: nothing, idempotent: free, irreversible: 'irreversible-answered' } as const;
const back = (point: string, about: string, tools: Boundary['tools'] = ANSWERED): Boundary => ({ victim: 'worker', point, about, tools, back: true });

/** How a boundary is called: of an answer's messages the type, and whose they are. */
function nameOf({ point, about, back = false }: Boundary): string {
  if (!back) return `${point} ${about === '1' ? 'call' : about}`;
  const [type = about] = about.split('/');
  return `${point} ${about === ANSWER ? 'answer' : type === about ? type : `${type} of an answer`}`;
}

const BOUNDARIES: readonly Boundary[] = [
  ...ofService('orchestrator'),
  ...waiting(),
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
  ...wayBack(WAY_BACK, ANSWERED, false),
  ...wayBack(WAY_BACK_IN_DOUBT, ANSWERED_IN_DOUBT, true),
  ...['before-publish', 'after-publish'].flatMap((point) => ['RecordStep', 'StartWait', 'ReleaseRun'].map((about): Boundary => ({ victim: 'worker', point: `worker.${point}`, about, tools: WAITING, waits: 'answered' }))),
  ...gateway(),
  ...['before-publish', 'after-publish'].map((point) => back(`worker.${point}`, `EffectReported/${ANSWER}`)),
  back('host.before-commit', ANSWER, COMMITTED_BACK),
  back('host.after-commit', ANSWER, COMMITTED_BACK),
  ...['host.before-call', 'host.after-call', 'host.after-report', 'host.before-probe', 'host.after-probe'].map((point) => back(point, ANSWER)),
];

/** Every process × boundary × effect class × delivery, with those that can't be and why. */
export function crashCells(): { readonly cells: CrashCell[]; readonly none: NoCell[] } {
  const cells: CrashCell[] = [];
  const none: NoCell[] = [];
  for (const each of BOUNDARIES) {
    const { victim, point, about, tools, doubt = false, back: answered = false, waits = null } = each;
    const boundary = nameOf(each);
    for (const effect of EFFECTS) {
      const tool = tools[effect];
      if (typeof tool !== 'string') none.push({ name: `${boundary} ${effect}`, because: tool.not });
      else for (const delivery of DELIVERIES) cells.push({ name: `${boundary} ${effect} ${delivery}`, victim, boundary, point, about, effect, tool, doubt, back: answered, waits, delivery });
    }
  }
  return { cells, none };
}
