import { ignore, record, refuse, unreachable, type Decider } from '@holdfast/kernel';
import {
  backoffMs,
  brakeKey,
  DEFAULT_RETRY,
  EffectRequested,
  GroupRequested,
  LeaseGranted,
  mayFireLocally,
  RunFinished,
  RunQuarantined,
  RunResumed,
  StepFailed,
  StepRecorded,
  StepRetryScheduled,
  StepsReported,
  type Fence,
  type Named,
  type RequestedCall,
  type Step,
} from '@holdfast/protocol';
import { neared, overBudget } from './budget.js';
import { askFirst, factsOf, revalidated } from './revalidate.js';
import { closed, defined, hosts, news, onlyReports, progressOf, refusal, sameNamed } from './accept.js';
import type { CallIdentity, Command, IgnoreReason, Refusal, RunCommand, RunDecision } from './commands.js';
import { compensated, compensating } from './answering.js';
import { approvalOf, unapproved } from './approval.js';
import { finalEffects, stepCounts } from './ending.js';
import { cancel, cancelled, decideApproval, pause, unpause, unquarantine } from './people.js';
import { unheard } from './unheard.js';
import { brake, noBrakes, setBrake } from './brakes.js';
import { answersNothing, unacceptable } from './callable.js';
import { copySteps, fork } from './fork.js';
import { block, release, settle } from './told.js';
import { admit, join, leaseOf, start } from './start.js';
import { LONG_CALL_MS } from './stuck.js';
import { abandonWait, callback, child, due, releaseRun, signal, startWait } from './waiting.js';
import { absent, evolve, holdOf, isCopying, openSteps, unknownSteps, type CallStep, type KnownRun, type Run, type RunEvent, type StepState } from './run.js';

/** A local step that took so many workers down takes its run out of the way instead. */
export const LOST_MAX = 20;

/** What was asked for, and what follows from it by itself. */
export function decide(command: RunCommand, run: Run): RunDecision {
  const decision = decideOne(command, run);
  if (command.type === 'due' && decision.kind === 'ignore' && run.status === 'open') {
    const [end] = cancelled(run);
    return end === undefined ? decision : record(end);
  }
  if (decision.kind !== 'record' || run.status === 'absent' || run.status === 'lane' || run.status === 'brakes') return decision;
  const after = decision.events.reduce<Run>(evolve, run) as KnownRun;
  return record(...decision.events, ...neared(run, after), ...cancelled(after));
}

function decideOne(command: RunCommand, run: Run): RunDecision {
  if (command.type === 'start') return start(command, run);
  if (command.type === 'set_brake' || command.type === 'release_brake') return setBrake(command, run.status === 'brakes' ? run : noBrakes);
  if (run.status === 'lane' || run.status === 'brakes') return ignore('not_a_run');
  if (run.status === 'absent') return runUnknown(command);
  switch (command.type) {
    case 'call':
      return call(command, run);
    case 'group':
      return group(command, run);
    case 'record':
    case 'try':
      return work(command, run);
    case 'report':
      return report(command, run);
    case 'finish':
      return finish(command, run);
    case 'diverged':
      return diverged(command, run);
    case 'grant':
      return grant(command, run);
    case 'settle':
      return settle(command, run);
    case 'block':
      return block(command, run);
    case 'release':
      return release(command, run);
    case 'wait':
      return startWait(command, run);
    case 'let_go':
      return releaseRun(command, run);
    case 'abandon':
      return abandonWait(command, run);
    case 'signal':
      return signal(command, run);
    case 'callback':
      return callback(command, run);
    case 'child':
      return child(command, run);
    case 'approve':
      return decideApproval(command, run);
    case 'cancel':
      return cancel(command, run);
    case 'pause':
      return pause(command, run);
    case 'unpause':
      return unpause(command, run);
    case 'unquarantine':
      return unquarantine(command, run);
    case 'due':
      return due(command, run);
    case 'compensating':
      return compensating(command, run);
    case 'compensated':
      return compensated(command, run);
    case 'join':
      return join(command, run);
    case 'fork':
      return fork(command, run);
    case 'copy':
      return copySteps(command, run);
    case 'admit':
      return admit(command, run);
    case 'brake':
      return brake(command, run);
    case 'unreadable':
      return refusal(run, unreadable(command), command.reported);
    case 'poison':
      // How a run ended stands, whatever is sent to it afterwards.
      if (run.status === 'ended') return ignore('run_over');
      return run.status === 'quarantined' ? ignore('already_quarantined') : record(RunQuarantined({ reason: 'poison', message: command.message }));
    default:
      return unreachable(command);
  }
}

export const runDecider: Decider<RunCommand, Run, RunEvent, IgnoreReason, Refusal> = { initial: absent, decide, evolve };

function runUnknown(command: Exclude<RunCommand, { type: 'start' | 'set_brake' | 'release_brake' }>): RunDecision {
  switch (command.type) {
    case 'grant':
    case 'settle':
    case 'block':
    case 'release':
    case 'poison':
    case 'due':
    case 'child':
    case 'compensating':
    case 'compensated':
    case 'join':
    case 'brake':
    case 'admit':
      return ignore('run_over');
    case 'unreadable':
      return refuse(unreadable(command));
    default:
      return refuse<Refusal>({ intent: command.type, reason: 'run_unknown', message: 'no such run: publish StartRun under this key first', token: `${command.type}:unknown` });
  }
}

const unreadable = ({ intent, reason, message, token, step, fence }: Command<'unreadable'>): Refusal => ({ intent, reason, message, token, ...defined({ step, fence }) });

function call({ data, identity, at, brake, spent }: Command<'call'>, run: KnownRun): RunDecision {
  const { step, fence, tool } = data;
  const place = { intent: 'CallTool', step, ...defined({ fence }) };
  const before = run.steps.get(step);
  const { contract } = identity;
  const fire = data.fire ?? 'granted';
  const recorded = recordedAs(run, step);
  // A worker fires a local call once its intent is acknowledged, before it hears of a refusal.
  const mayHaveFired = fire === 'local' && contract?.effect === 'idempotent' && recorded === null;
  const no = (because: Refusal): RunDecision => refusal(run, mayHaveFired ? { ...because, bound: requestedCall(run, data, identity, contract) } : because, data);

  if (recorded !== null && !boundTo(before, tool, identity)) {
    return (
      knownStep(run, before, data, identity) ??
      no(
        closed(run, 'CallTool', data, at) ?? {
          ...place,
          reason: 'operation_conflict',
          message: `step ${step} is recorded as ${recorded}; another tool, target or other arguments fire nothing. Use a new step, or adopt the recorded intent`,
          token: `conflict:${step}:${identity.key}:${identity.digest}`,
        },
      )
    );
  }
  const bad = closed(run, 'CallTool', data, at) ?? unacceptable(tool, identity, place) ?? unapproved(run, data, identity, place, at) ?? answersNothing(run, data, place) ?? overBudget(run, before === undefined ? 1 : 0, place, spent);
  if (bad !== null) return no(bad);
  if (contract === null || (fire === 'local' && (!mayFireLocally(contract) || data.approval !== undefined))) {
    return no({ ...place, reason: 'local_not_allowed', message: `tool ${tool.name} is ${contract?.effect ?? 'unknown'}: it fires only when the ledger grants it; leave out fire: "local"`, token: `local:${step}` });
  }
  // A local call may have fired by now; a granted one waits in the ledger until its tool is let go.
  const held = fire === 'granted' && brake !== null && brake !== undefined ? { brake: brakeKey(brake.target), by: brake.by.name, reason: brake.reason } : undefined;
  return record(EffectRequested({ call: requestedCall(run, data, identity, contract), fire, ...defined({ held }), ...progressOf(run, data) }));
}

/** A step asked for again: the same is a duplicate, whatever its fence; null when it is something else. */
function knownStep(run: KnownRun, before: StepState | undefined, data: Command<'call'>['data'], identity: CallIdentity): RunDecision | null {
  if (before?.kind !== 'call') return null;
  if (sameCall(before.call, data.tool, identity)) return onlyReports(run, data, 'duplicate');
  return data.onConflict === 'adopt' && before.call.tool.name === data.tool.name ? onlyReports(run, data, 'adopted') : null;
}

const sameCall = (recorded: RequestedCall, tool: Named, identity: CallIdentity): boolean => sameNamed(recorded.tool, tool) && recorded.key === identity.key && recorded.digest === identity.digest;

/** A refused local call that may have fired is asked for again, the same: now it is taken. */
const boundTo = (before: StepState | undefined, tool: Named, identity: CallIdentity): boolean => before?.kind === 'call' && before.bound && sameCall(before.call, tool, identity);

/** What stands under a step, in words; null when it is free. A group holds its own step as well as its members'. */
function recordedAs(run: KnownRun, step: Step): string | null {
  const state = run.steps.get(step);
  if (state === undefined) return run.groups.has(step) ? 'a group' : null;
  if (state.kind === 'wait') return `a wait (${state.wait.kind})`;
  return state.kind === 'call' ? `a call of ${state.call.tool.name}` : `${state.as} "${state.name}"`;
}

interface Wish {
  readonly step: Step;
  readonly tool: Named;
  readonly args: RequestedCall['args'];
  readonly target?: string | undefined;
  readonly repairs?: Step | undefined;
  readonly fallbackFor?: Step | undefined;
  readonly approval?: Step | undefined;
}

function requestedCall(run: KnownRun, data: Wish, identity: CallIdentity, contract: NonNullable<CallIdentity['contract']>): RequestedCall {
  return {
    step: data.step,
    tool: data.tool,
    effect: contract.effect,
    keyScope: contract.keyScope,
    args: data.args,
    ...defined({ target: data.target }),
    key: identity.key,
    digest: identity.digest,
    digestVersion: identity.digestVersion,
    ...defined({ repairs: data.repairs, fallbackFor: data.fallbackFor, mayTakeMs: mayTake(contract), attemptsMax: run.budgets.attemptsMax, approval: approvalOf(run, data.approval, identity) }),
  };
}

function mayTake({ queueMs, timeoutMs }: NonNullable<CallIdentity['contract']>): number | undefined {
  return queueMs + timeoutMs >= LONG_CALL_MS ? queueMs + timeoutMs : undefined;
}

function group({ data, identities, at, spent }: Command<'group'>, run: KnownRun): RunDecision {
  const { step, fence, calls } = data;
  const place = { intent: 'CallGroup', step, ...defined({ fence }) };
  const members = calls.flatMap((call, i) => {
    const identity = identities[i];
    return identity === undefined ? [] : [{ call, identity, before: run.steps.get(call.step) }];
  });
  if (members.every(({ call, identity, before }) => before?.kind === 'call' && !before.bound && sameCall(before.call, call.tool, identity))) return onlyReports(run, data, 'duplicate');

  // A worker fires the calls of a group once it is acknowledged, before it hears of a refusal. Its reads are bound with the others: it is one record.
  const local = members.flatMap(({ call, identity }) => {
    const { contract } = identity;
    return recordedAs(run, call.step) === null && call.step !== step && contract !== null && mayFireLocally(contract) ? [requestedCall(run, call, identity, contract)] : [];
  });
  const mayHaveFired = local.some(({ effect }) => effect === 'idempotent') ? local : [];
  const no = (because: Refusal): RunDecision => refusal(run, mayHaveFired.length === 0 ? because : { ...because, boundGroup: mayHaveFired }, data);

  const shut = closed(run, 'CallGroup', data, at) ?? overBudget(run, members.filter(({ before }) => before === undefined).length, place, spent);
  if (shut !== null) return no(shut);
  const taken = recordedAs(run, step);
  if (taken !== null) return no({ ...place, reason: 'operation_conflict', message: `step ${step} is recorded as ${taken}; a group needs a step of its own`, token: `conflict:${step}:group` });
  const seen = new Set<Step>([step]);
  const requested: RequestedCall[] = [];
  for (const { call, identity, before } of members) {
    const at = { ...place, step: call.step };
    if (seen.has(call.step)) {
      return no({ ...at, reason: 'group_not_allowed', message: `step ${call.step} stands twice in group ${step}: each call needs a step of its own, and so does the group`, token: `twice:${step}:${call.step}` });
    }
    seen.add(call.step);
    const other = recordedAs(run, call.step);
    if (other !== null && !boundTo(before, call.tool, identity)) {
      return no({ ...place, reason: 'operation_conflict', message: `step ${call.step} of group ${step} is recorded as ${other}`, token: `conflict:${step}:group` });
    }
    const bad = unacceptable(call.tool, identity, at);
    if (bad !== null) return no(bad);
    if (identity.contract === null || !mayFireLocally(identity.contract)) {
      return no({ ...at, reason: 'group_not_allowed', message: `tool ${call.tool.name} is ${identity.contract?.effect ?? 'unknown'}: only pure and idempotent calls may be recorded as one group`, token: `group:${call.step}` });
    }
    requested.push(requestedCall(run, call, identity, identity.contract));
  }
  return record(GroupRequested({ step, calls: requested, ...progressOf(run, data) }));
}

function work(command: Command<'record'> | Command<'try'>, run: KnownRun): RunDecision {
  const { data, at } = command;
  const { step, kind, name } = data;
  const intent = command.type === 'record' ? 'RecordStep' : 'ReportTry';
  const before = run.steps.get(step);
  const attempt = command.type === 'try' ? command.data.attempt : null;
  const recorded = recordedAs(run, step);
  if (recorded !== null) {
    const same = before !== undefined && before.kind !== 'call' && before.kind !== 'wait' && before.as === kind && before.name === name;
    if (same && (before.kind === 'record' || (attempt !== null && attempt <= before.attempt) || before.retryAt === null)) return onlyReports(run, data, 'duplicate');
    if (!same) {
      const shut = closed(run, intent, data, at);
      return refusal(run, shut ?? { intent, step, reason: 'operation_conflict', message: `step ${step} is recorded as ${recorded}, not ${kind} "${name}"`, token: `conflict:${step}:${kind}:${name}` }, data);
    }
  }
  const shut = closed(run, intent, data, at) ?? (before === undefined ? overBudget(run, 1, { intent, step }, command.spent) : null);
  if (shut !== null) return refusal(run, shut, data);
  const progress = progressOf(run, data);
  if (command.type === 'record') return record(StepRecorded({ step, kind, name, result: command.data.result, ...defined({ usage: command.data.usage }), ...progress }));
  const { failure } = command.data;
  const tried = { step, kind, name, attempt: command.data.attempt, failure, ...progress };
  const retriable = failure.class === 'transient' || failure.class === 'overloaded';
  if (!retriable || command.data.attempt >= DEFAULT_RETRY.attemptsMax) return record(StepFailed(tried));
  return record(StepRetryScheduled({ ...tried, retryAt: at + backoffMs(DEFAULT_RETRY, command.data.attempt, command.jitter, failure.retryAfterMs) }));
}

function report({ data }: Command<'report'>, run: KnownRun): RunDecision {
  // Results are evidence: no fence refuses them. The order in which code was told is the holder's word alone.
  const settles = news(run, data.settles);
  const mine = run.status === 'open' && (data.fence === undefined ? run.lease === null : data.fence === run.lease?.fence);
  // Code is told of each completion once: what is known to have been told is this report read again.
  const known = new Set(mine && data.observed !== undefined ? run.observed : []);
  const told = mine ? (data.observed ?? []).filter((step) => !known.has(step)) : [];
  if (settles.length === 0 && told.length === 0) return ignore('nothing_new');
  return record(StepsReported({ ...(settles.length === 0 ? {} : { settles }), ...(told.length === 0 ? {} : { observed: told }), ...defined({ fence: data.fence }) }));
}

function finish({ data, at }: Command<'finish'>, run: KnownRun): RunDecision {
  if (run.status === 'ended' && JSON.stringify(run.ending) === JSON.stringify(data.ending)) return onlyReports(run, data, 'duplicate');
  const place = { intent: 'FinishRun', ...defined({ fence: data.fence }) };
  const shut = closed(run, 'FinishRun', data, at);
  if (shut !== null) return refusal(run, shut, data);
  const progress = progressOf(run, data);
  const after = evolve(run, StepsReported(progress)) as KnownRun;
  if (data.ending.status === 'completed') {
    const unknown = unknownSteps(after);
    const open = openSteps(after);
    if (unknown.length > 0) {
      return refusal(run, { ...place, reason: 'outcome_unknown', message: `nobody knows whether ${steps(unknown)} happened; complete partially, or wait until it is settled`, token: `unknown:${fenceOf(data)}:${steps(unknown)}` }, data);
    }
    if (open.length > 0) return refusal(run, { ...place, reason: 'steps_open', message: `${steps(open)} has no end yet`, token: `open:${fenceOf(data)}:${steps(open)}` }, data);
  }
  return record(RunFinished({ ending: data.ending, effects: finalEffects(after), steps: stepCounts(after), ...progress }));
}

const steps = (found: readonly CallStep[]): string => found.map(({ call: { step, tool } }) => `step ${step} (${tool.name})`).join(', ');
const fenceOf = (data: { fence?: Fence | undefined }): string => String(data.fence ?? '');

function diverged({ data, at }: Command<'diverged'>, run: KnownRun): RunDecision {
  if (run.status === 'quarantined') return ignore('already_quarantined');
  const shut = closed(run, 'ReportDivergence', data, at);
  if (shut !== null) return refusal(run, shut);
  return record(
    RunQuarantined({ reason: 'incompatible_history', step: data.step, message: `at step ${data.step} the history holds ${data.recorded}, the code asks for ${data.asked}` }),
  );
}

function grant({ holder, at }: Command<'grant'>, run: KnownRun): RunDecision {
  if (run.status !== 'open' || run.agent === null) return ignore('run_over');
  if (run.cancel !== null) {
    // Whoever fired its local calls holds the lane no more.
    const [lost] = holder.offset === run.cancel.lease?.taken ? [] : unheard(run, 'its worker was lost while the run was being cancelled');
    return lost === undefined ? ignore('held_back') : record(lost);
  }
  if (run.released || run.queued !== null || holdOf(run) !== null || isCopying(run)) return ignore('held_back');
  const agentVersion = hosts(holder, run.agent);
  if (agentVersion === null) return ignore('version_not_hosted');
  if (run.lease?.taken === holder.offset && (run.lease.rebuilt ?? 0) === holder.rebuilt) return ignore('already_held');
  if (run.lastFence === 0) return record(LeaseGranted({ lease: leaseOf(holder, 1, run.agent), because: 'worker_arrived' }));
  const asks = askFirst(run, holder, run.agent, at);
  if (asks !== null) return record(asks);
  const lease = leaseOf(holder, run.lastFence + 1, run.agent);
  const pending = openSteps(run).filter(({ fire }) => fire === 'local');
  const changes = run.lease !== null && run.lease.worker !== holder.worker;
  const worn = changes ? pending.find(({ lost }) => lost + 1 >= LOST_MAX) : undefined;
  if (worn !== undefined) {
    return record(RunQuarantined({ reason: 'poison', step: worn.call.step, message: `${LOST_MAX} workers were lost, one after the other, while step ${worn.call.step} (${worn.call.tool.name}) was under way there` }));
  }
  return record(
    RunResumed({
      lease,
      because: changes ? 'worker_changed' : run.lease === null ? 'let_go_before' : 'worker_returned',
      revalidated: revalidated(run, agentVersion, at, factsOf(holder, run.agent), holder.undeclared),
      replayed: [...run.steps.values()].filter((step) => step.kind === 'record' || (step.kind === 'call' && step.outcome !== null)).length,
      refired: pending.map(({ call: { step }, attempt }) => ({ step, attempt: attempt + 1 })),
    }),
  );
}
