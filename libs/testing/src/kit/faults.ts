import type { Asked, Site, SiteFault } from '../sim/faults.js';

/** A fault at a tool's step, by name. Each comes once: at the first passage, or the nth. */
export interface StepFault {
  readonly name: string;
  readonly tool: string;
  readonly nth: number;
  /** @internal */
  readonly sites: readonly Site[];
  /** @internal */
  readonly kinds: ReadonlySet<Asked['kind']>;
  /** @internal */
  readonly kind: SiteFault;
}

const FIRING: readonly Site[] = ['fire.local', 'fire.granted'];
const worker: ReadonlySet<Asked['kind']> = new Set(['worker']);
const ledger: ReadonlySet<Asked['kind']> = new Set(['ledger']);
const orchestrator: ReadonlySet<Asked['kind']> = new Set(['orchestrator']);

const make = (name: string, sites: readonly Site[], kinds: ReadonlySet<Asked['kind']>, kind: SiteFault) => (tool: string, nth = 1): StepFault => ({ name: `${name}('${tool}'${nth === 1 ? '' : `, ${nth}`})`, tool, nth, sites, kinds, kind });

/** The process that does it dies there, and another takes its place. */
export const crash = {
  /** The worker, before Kafka has the intent. */
  beforeIntent: make('crash.beforeIntent', ['publish.intents'], worker, 'crash_before'),
  /** The worker, when Kafka has the intent and it has not heard so. */
  afterIntent: make('crash.afterIntent', ['publish.intents'], worker, 'crash_after'),
  /** The orchestrator, when the intent is decided and nobody has been told. */
  afterDecision: make('crash.afterDecision', ['store.commit'], orchestrator, 'crash_after'),
  /** The ledger, when the attempt is granted and its task not published. Granted effects only. */
  afterGrant: make('crash.afterGrant', ['store.commit'], ledger, 'crash_after'),
  /** The worker, last thing before the tool's code is called. */
  beforeFiring: make('crash.beforeFiring', FIRING, worker, 'crash_before'),
  /** The worker, when the tool's code has returned and nothing of it is recorded. */
  afterFiring: make('crash.afterFiring', FIRING, worker, 'crash_after'),
  /** The worker, when Kafka has the report and it has not heard so. Granted effects only. */
  afterReport: make('crash.afterReport', ['publish.results'], worker, 'crash_after'),
} as const;

/** Something is delivered twice. */
export const duplicate = {
  /** The task of a granted effect. */
  task: make('duplicate.task', ['publish'], ledger, 'doubled'),
  /** The intent. */
  intent: make('duplicate.intent', ['publish.intents'], worker, 'doubled'),
  /** The report of a granted effect. */
  report: make('duplicate.report', ['publish.results'], worker, 'doubled'),
} as const;

/** Something is written, and its writer hears of an error. */
export const lost = {
  intentAcknowledgement: make('lost.intentAcknowledgement', ['publish.intents'], worker, 'lost_ack'),
  reportAcknowledgement: make('lost.reportAcknowledgement', ['publish.results'], worker, 'lost_ack'),
} as const;
