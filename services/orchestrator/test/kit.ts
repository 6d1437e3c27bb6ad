import { specification } from '@holdfast/kernel';
import {
  Attempt,
  digestOf,
  EffectRequested,
  Fence,
  IntentRejected,
  operationKey,
  Pool,
  RunAccepted,
  RunId,
  Step,
  Tenant,
  ToolContract,
  WorkerId,
  type EffectClass,
  type Ending,
  type Evidence,
  type Failure,
  type FailureClass,
  type Fire,
  type Json,
  type Outcome,
  type RequestedCall,
  type Settled,
} from '@holdfast/protocol';
import type { CallIdentity, Holder, Refusal, RunCommand } from '../src/domain/commands.js';
import type { RunDecision } from '../src/domain/commands.js';
import { runDecider } from '../src/domain/decide.js';
import type { KnownRun, Run, RunEvent } from '../src/domain/run.js';

type Command<Type extends RunCommand['type']> = Extract<RunCommand, { type: Type }>;

export const given = specification(runDecider).given;

export const at = 50_000;
export const tenant = Tenant.parse('acme');
export const run = RunId.parse('run-1');
export const pool = Pool.parse('agents');
export const agent = { name: 'clerk', version: '1' };
export const input: Json = { order: 7 };
export const s = (text: string): Step => Step.parse(text);
export const f = (value: number): Fence => Fence.parse(value);
export const host: Evidence = { kind: 'host' };
export const holder = (worker: string, offset: number, agents = [agent]): Holder => ({ worker: WorkerId.parse(worker), agents, offset, rebuilt: 0 });

export const tools = {
  lookup: { name: 'lookup', version: '1' },
  reserve: { name: 'reserve', version: '1' },
  refund: { name: 'refund', version: '1' },
};
const classes: Record<string, EffectClass> = { lookup: 'pure', reserve: 'idempotent', refund: 'irreversible' };
type ToolName = keyof typeof tools;

export const contract = (tool: ToolName, keyScope: 'run' | 'target' = 'run'): ToolContract =>
  ToolContract.parse({
    ...tools[tool],
    pool,
    effect: classes[tool],
    keyScope,
    input: {},
    output: {},
    retry: { attemptsMax: 3, initialMs: 100, maxMs: 1000, factor: 2 },
    timeoutMs: 500,
    queueMs: 1000,
    settleDelayMs: null,
    probe: null,
    owner: null,
  });

/** What a call names, worked out as the shell does. */
export const identity = (step: Step, tool: ToolName, args: Json, over: Partial<CallIdentity> = {}): CallIdentity => ({
  key: operationKey({ scope: 'run', tenant, run, step, tool: tools[tool].name, target: null }),
  digest: digestOf(args),
  digestVersion: 1,
  contract: contract(tool),
  invalid: null,
  ...over,
});

export const requested = (step: Step, tool: ToolName, args: Json = { n: 1 }): RequestedCall => {
  const { key, digest, digestVersion } = identity(step, tool, args);
  return { step, tool: tools[tool], effect: contract(tool).effect, keyScope: 'run', args, key, digest, digestVersion };
};

interface Asking {
  readonly args?: Json;
  readonly fence?: number | null;
  readonly fire?: Fire;
  readonly onConflict?: 'refuse' | 'adopt';
  readonly settles?: Settled[];
  readonly observed?: Step[];
  readonly at?: number;
  readonly identity?: Partial<CallIdentity>;
  readonly repairs?: Step;
  readonly fallbackFor?: Step;
}

const fenced = (fence: number | null | undefined): { fence?: Fence } => (fence === null ? {} : { fence: f(fence ?? 1) });

export function call(step: string, tool: ToolName, asking: Asking = {}): Command<'call'> {
  const { args = { n: 1 }, fence, fire, onConflict, settles, observed, repairs, fallbackFor } = asking;
  return {
    type: 'call',
    at: asking.at ?? at,
    data: {
      step: s(step),
      tool: tools[tool],
      args,
      ...fenced(fence),
      ...(fire === undefined ? {} : { fire }),
      ...(onConflict === undefined ? {} : { onConflict }),
      ...(settles === undefined ? {} : { settles }),
      ...(observed === undefined ? {} : { observed }),
      ...(repairs === undefined ? {} : { repairs }),
      ...(fallbackFor === undefined ? {} : { fallbackFor }),
    },
    identity: identity(s(step), tool, args, asking.identity),
  };
}

export const group = (step: string, members: readonly (readonly [string, ToolName, Json?])[], fence: number | null = 1): Command<'group'> => ({
  type: 'group',
  at,
  data: { step: s(step), calls: members.map(([member, tool, args = { n: 1 }]) => ({ step: s(member), tool: tools[tool], args })), ...fenced(fence) },
  identities: members.map(([member, tool, args = { n: 1 }]) => identity(s(member), tool, args)),
});

export const note = (step: string, name: string, fence: number | null = 1, value: Json = 1): Command<'record'> => ({
  type: 'record',
  at,
  data: { step: s(step), kind: 'step', name, result: { value }, ...fenced(fence) },
});
export const failure = (of: FailureClass = 'transient'): Failure => ({ class: of, message: `it was ${of}` });
export const tried = (step: string, attempt: number, of: FailureClass = 'transient', fence: number | null = 1): Command<'try'> => ({
  type: 'try',
  at,
  data: { step: s(step), kind: 'step', name: 'think', attempt, failure: failure(of), ...fenced(fence) },
  jitter: 0.5,
});
export const reports = (settles: Settled[], fence: number | null = 1, observed?: Step[]): Command<'report'> => ({
  type: 'report',
  at,
  data: { ...(settles.length === 0 ? {} : { settles }), ...fenced(fence), ...(observed === undefined ? {} : { observed }) },
});
export const completed: Ending = { status: 'completed', output: { value: 'done' } };
export const partially: Ending = { status: 'completed_partially', output: { value: 'half' }, because: 'one refund is in doubt' };
export const finish = (ending: Ending = completed, fence: number | null = 1, settles?: Settled[]): Command<'finish'> => ({
  type: 'finish',
  at,
  data: { ending, ...fenced(fence), ...(settles === undefined ? {} : { settles }) },
});
export const grant = (of: Holder): Command<'grant'> => ({ type: 'grant', at, holder: of });
export const start = (over: Partial<Command<'start'>> & { input?: Json } = {}): Command<'start'> => {
  const { input: given = input, ...rest } = over;
  return { type: 'start', at, tenant, data: { agent, pool, input: given }, inputDigest: digestOf(given), holder: holder('w1', 10), ...rest };
};
export const settle = (step: string, outcome: Command<'settle'>['outcome'] = { status: 'succeeded', result: { value: 'r' }, evidence: host }): Command<'settle'> => ({
  type: 'settle',
  at,
  step: s(step),
  attempt: 1,
  outcome,
});
export const block = (step: string): Command<'block'> => ({ type: 'block', at, step: s(step), attempt: 1, cause: 'deadline', message: 'no end by its deadline' });

export const release = (step: string, attempt = 1): Command<'release'> => ({ type: 'release', at, step: s(step), attempt, because: 'proved not applied' });

export const succeeded: Extract<Outcome, { status: 'succeeded' }> = { status: 'succeeded', result: { value: 'r' }, evidence: host };
export const ended = (step: string, outcome: Outcome = succeeded, attempt: number = 1): Settled => ({ step: s(step), attempt: Attempt.parse(attempt), outcome });

/** An open run, held by worker w1 under fence 1 unless told otherwise. */
export const accepted = (over: Partial<ReturnType<typeof RunAccepted>['data']> = {}): RunEvent =>
  RunAccepted({ tenant, agent, pool, input, inputDigest: digestOf(input), lease: { fence: f(1), worker: WorkerId.parse('w1'), taken: 10 }, ...over });
export const asked = (step: string, tool: ToolName, args: Json = { n: 1 }, fire: Fire = 'granted', fence = 1): RunEvent => EffectRequested({ call: requested(s(step), tool, args), fire, fence: f(fence) });

/** The stream's event for a refusal, as the shell writes it. */
export const spoken = ({ settles, observed, bound, boundGroup, ...refusal }: Refusal): RunEvent =>
  IntentRejected({
    ...refusal,
    ...(settles === undefined ? {} : { settles: [...settles] }),
    ...(observed === undefined ? {} : { observed: [...observed] }),
    ...(bound === undefined ? {} : { bound }),
    ...(boundGroup === undefined ? {} : { boundGroup: [...boundGroup] }),
  });

/** The events that a decision leaves in the stream. */
export const eventsOf = (decision: RunDecision): readonly RunEvent[] => (decision.kind === 'record' ? decision.events : decision.kind === 'refuse' ? [spoken(decision.because)] : []);

/** Plays commands one after the other, as the shell does. */
export function played(first: readonly RunEvent[], ...commands: readonly RunCommand[]): RunEvent[] {
  const events = [...first];
  for (const command of commands) {
    const state = given(...events).state();
    // Nothing is written about a run that never was.
    if (state.status === 'absent' && command.type !== 'start') continue;
    events.push(...eventsOf(runDecider.decide(command, state)));
  }
  return events;
}

export function known(state: Run): KnownRun {
  if (state.status === 'absent' || state.status === 'lane' || state.status === 'brakes') throw new Error(`not a run: ${state.status}`);
  return state;
}

/** As a newer run of the same conversation cancels it. */
export const cancelOf = (rollback: boolean): Command<'cancel'> => ({
  type: 'cancel',
  at,
  asked: { command: 'concurrent:run-2', by: { name: 'run run-2', roles: ['operator'] }, reason: 'newer input came', scope: 'tree', manner: 'graceful', ...(rollback ? { compensate: true as const } : {}) },
});
