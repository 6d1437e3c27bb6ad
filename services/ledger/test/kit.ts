import { specification } from '@holdfast/kernel';
import {
  Digest,
  EffectDispatched,
  OperationKey,
  Pool,
  RunId,
  Step,
  ToolContract,
  type EffectClass,
  type Evidence,
  type Failure,
  type FailureClass,
  type Outcome,
  type RequestedCall,
  type RetryPolicy,
} from '@holdfast/protocol';
import { ownKey, type Claim } from '../src/domain/claim.js';
import type { EffectCommand, Sending } from '../src/domain/commands.js';
import { effectDecider, REPORT_GRACE_MS } from '../src/domain/decide.js';
import { openGate } from '../src/domain/health.js';
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

export const QUEUE_MS = 1000;
export const TIMEOUT_MS = 500;
export const retry: RetryPolicy = { attemptsMax: 3, initialMs: 100, maxMs: 1000, factor: 2 };
export const now = 10_000;

export const contract = (effect: EffectClass = 'irreversible'): ToolContract =>
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
  });

export const sending = (effect: EffectClass = 'irreversible', at = now): Sending => ({ at, contract: contract(effect), taskSeq: 7, jitter: 0.5 });

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

export const request = (effect: EffectClass = 'irreversible', over: { claim?: Claim; call?: Partial<RequestedCall>; at?: number } = {}): Command<'request'> => ({
  type: 'request',
  call: callOf(effect, over.call),
  fence: 2,
  claim: over.claim ?? ownKey,
  gate: openGate,
  ...sending(effect, over.at),
});

export const report = (attempt: number, outcome: Outcome, effect: EffectClass = 'irreversible', at = now): Command<'report'> => ({ type: 'report', step, attempt, outcome, ...sending(effect, at) });
export const due = (at: number, effect: EffectClass = 'irreversible', claim: Claim = ownKey): Command<'due'> => ({ type: 'due', step, claim, gate: openGate, ...sending(effect, at) });
export const hostLost = (takenSeq: number, effect: EffectClass = 'irreversible', of = pool): Command<'host_lost'> => ({ type: 'host_lost', step, pool: of, takenSeq, ...sending(effect) });

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
    ...over,
  });

export const succeeded: Outcome = { status: 'succeeded', result: { value: { id: 're_1' } }, evidence: receipt };
export const rejected: Outcome = { status: 'rejected', reason: 'card expired', evidence: host };
export const unknown: Outcome = { status: 'unknown', cause: 'may_have_applied', message: 'connection lost after the request was sent' };
export const failure = (of: FailureClass, notApplied?: boolean): Failure => ({ class: of, message: `it was ${of}`, ...(notApplied === undefined ? {} : { notApplied }) });
export const failed = (of: FailureClass, notApplied?: boolean): Outcome => ({ status: 'failed', failure: failure(of, notApplied), evidence: host });

export const fresh = { step, key };
