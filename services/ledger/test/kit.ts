import { specification } from '@holdfast/kernel';
import {
  Digest,
  EffectDispatched,
  EffectHeld,
  OperationKey,
  Pool,
  RunId,
  Step,
  ToolContract,
  VerdictContradicted,
  type EffectClass,
  type Evidence,
  type Failure,
  type FailureClass,
  type Outcome,
  type RequestedCall,
  type RetryPolicy,
  type Verdict,
} from '@holdfast/protocol';
import { ownKey, type Claim } from '../src/domain/claim.js';
import type { EffectCommand, EffectDecision, Sending } from '../src/domain/commands.js';
import { effectDecider, REPORT_GRACE_MS } from '../src/domain/decide.js';
import { openGate, type Gate } from '../src/domain/health.js';
import type { EffectEvent } from '../src/domain/effect.js';

type Command<Type extends EffectCommand['type']> = Extract<EffectCommand, { type: Type }>;

export const given = specification(effectDecider).given;

export const step = Step.parse('1');
export const key = OperationKey.parse('1'.repeat(64));
export const digest = Digest.parse('a'.repeat(64));
export const otherDigest = Digest.parse('b'.repeat(64));
export const pool = Pool.parse('pay');
export const tool = { name: 'refund', version: '1' };
export const owner = { run: RunId.parse('run-of-another'), step: Step.parse('4') };
export const host: Evidence = { kind: 'host' };
export const receipt: Evidence = { kind: 'receipt', note: 'r-1' };
export const probed: Evidence = { kind: 'probe', note: 'GET /refunds?key=1' };

export const QUEUE_MS = 1000;
export const TIMEOUT_MS = 500;
export const retry: RetryPolicy = { attemptsMax: 3, initialMs: 100, maxMs: 1000, factor: 2 };
export const HOLD_MS = 600_000;
export const now = 10_000;

export const contract = (effect: EffectClass = 'irreversible', over: Partial<ToolContract> = {}): ToolContract =>
  ToolContract.parse({
    ...tool,
    pool,
    effect,
    keyScope: 'run',
    input: {},
    output: {},
    retry,
    timeoutMs: TIMEOUT_MS,
    queueMs: QUEUE_MS,
    settleDelayMs: null,
    probe: null,
    owner: 'payments@example.org',
    ...over,
  });

export const sending = (effect: EffectClass = 'irreversible', at = now, over: Partial<ToolContract> = {}): Sending => ({ at, contract: contract(effect, over), taskSeq: 7, jitter: 0.5 });
/** The same command under a contract that says more. */
export const under = <Asked extends EffectCommand>(over: Partial<ToolContract>, command: Asked): Asked => ({ ...command, contract: command.contract === null ? null : { ...command.contract, ...over } });

export const callOf = (effect: EffectClass = 'irreversible', over: Partial<RequestedCall> = {}): RequestedCall => ({
  step,
  tool,
  effect,
  keyScope: 'run',
  args: { amount: 5 },
  key,
  digest,
  digestVersion: 1,
  ...over,
});

export const request = (effect: EffectClass = 'irreversible', over: { claim?: Claim; call?: Partial<RequestedCall>; at?: number; gate?: Gate } = {}): Command<'request'> => ({
  type: 'request',
  call: callOf(effect, over.call),
  fence: 2,
  claim: over.claim ?? ownKey,
  gate: over.gate ?? openGate,
  ...sending(effect, over.at),
});

export const report = (attempt: number, outcome: Outcome, effect: EffectClass = 'irreversible', at = now): Command<'report'> => ({ type: 'report', step, attempt, outcome, ...sending(effect, at) });
export const due = (at: number, effect: EffectClass = 'irreversible', claim: Claim = ownKey, gate: Gate = openGate): Command<'due'> => ({ type: 'due', step, claim, gate, ...sending(effect, at) });
export const hostLost = (takenSeq: number, effect: EffectClass = 'irreversible', of = pool): Command<'host_lost'> => ({ type: 'host_lost', step, pool: of, takenSeq, ...sending(effect) });

export const closedGate: Extract<Gate, { open: false }> = { open: false, because: 'circuit_open', message: 'the circuit of refund@1 is open', lookAgainAt: now + 200 };
export const alive = (attempt: number, at: number, heartbeatMs?: number): Command<'alive'> => ({ type: 'alive', step, attempt, progress: { done: 3 }, ...sending('irreversible', at, heartbeatMs === undefined ? {} : { heartbeatMs }) });

/** A settled case. A reading, unless told otherwise, that seals the attempt. */
export const verdict = (attempt: number, found: Verdict, effect: EffectClass = 'irreversible', over: Partial<Command<'verdict'>> = {}): Command<'verdict'> => ({
  type: 'verdict',
  step,
  attempt,
  verdict: found,
  by: 'probe',
  evidence: probed,
  because: 'it was looked up',
  readAt: now,
  sealing: true,
  forced: false,
  ...sending(effect),
  ...over,
});
export const applied: Verdict = { status: 'applied', result: { value: { id: 're_9' } } };
export const notApplied: Verdict = { status: 'not_applied' };
export const sameKeyAgain: Verdict = { status: 'same_key_again' };

/** What an unknown outcome says of its effect. */
export const about = (effect: EffectClass = 'irreversible') => ({ tool, effect, args: { amount: 5 }, fence: 2, since: now });

/** An attempt as it stands in the stream. The first carries the arguments. */
export const dispatched = (attempt = 1, effect: EffectClass = 'irreversible', over: Partial<ReturnType<typeof EffectDispatched>['data']> = {}): EffectEvent =>
  EffectDispatched({
    step,
    key,
    tool,
    effect,
    keyScope: 'run',
    pool,
    digest,
    attempt,
    fence: 2,
    ...(attempt === 1 ? { args: { amount: 5 } } : {}),
    because: 'first attempt',
    notAfter: now + QUEUE_MS,
    deadline: now + QUEUE_MS + TIMEOUT_MS + REPORT_GRACE_MS,
    taskSeq: 7,
    since: now,
    ...over,
  });

/** An effect that waits, as it stands in the stream. */
export const held = (attempt = 1, effect: EffectClass = 'irreversible', over: Partial<ReturnType<typeof EffectHeld>['data']> = {}): EffectEvent =>
  EffectHeld({
    ...{ step, key, tool, effect, keyScope: 'run', digest, fence: 2, attempt },
    ...(attempt === 1 ? { args: { amount: 5 } } : {}),
    ...{ because: 'circuit_open', message: closedGate.message, since: now, until: now + HOLD_MS, ...over },
  });

export const succeeded: Outcome = { status: 'succeeded', result: { value: { id: 're_1' } }, evidence: receipt };
export const rejected: Outcome = { status: 'rejected', reason: 'card expired', evidence: host };
export const unknown: Outcome = { status: 'unknown', cause: 'may_have_applied', message: 'connection lost after the request was sent' };
export const failure = (of: FailureClass, notApplied?: boolean): Failure => ({ class: of, message: `it was ${of}`, ...(notApplied === undefined ? {} : { notApplied }) });
export const failed = (of: FailureClass, notApplied?: boolean): Outcome => ({ status: 'failed', failure: failure(of, notApplied), evidence: host });

export const fresh = { step, key };

/** Two words on one attempt that can't both be true. */
export const contradicted = (attempt: number, status: 'succeeded' | 'rejected' | 'failed' | 'not_applied', by: string, outcome: Outcome): EffectEvent =>
  VerdictContradicted({
    ...fresh,
    attempt,
    recorded: { status, by },
    outcome,
    message: `attempt ${attempt} of refund was recorded as ${status} (by ${by}), and now its outcome is told as ${outcome.status}: compare both with the target`,
  });

export const eventsOf = (decision: EffectDecision): readonly EffectEvent[] => (decision.kind === 'record' ? decision.events : []);

/** Plays commands one after the other, as the shell does; with what was in the stream before. */
export function played(before: readonly EffectEvent[], ...commands: readonly EffectCommand[]): EffectEvent[] {
  const events = [...before];
  for (const command of commands) events.push(...eventsOf(given(...events).when(command)));
  return events;
}
