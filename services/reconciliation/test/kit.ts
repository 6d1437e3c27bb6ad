import { specification } from '@holdfast/kernel';
import {
  CaseOpened,
  CLOCK_SKEW_MS,
  OperationKey,
  Pool,
  ProbeConcluded,
  ProbeSent,
  Step,
  ToolContract,
  type AssignCase,
  type EffectClass,
  type Evidence,
  type MessageOf,
  type Operator,
  type ProbeAnswer,
  type ResolveCase,
  type UnknownCause,
} from '@holdfast/protocol';
import type { CaseEvent } from '../src/domain/case.js';
import type { CaseCommand, CaseDecision, Command, Looking } from '../src/domain/commands.js';
import { caseDecider } from '../src/domain/decide.js';

export const given = specification(caseDecider).given;

export const now = 100_000;
export const step = Step.parse('3');
export const key = OperationKey.parse('2'.repeat(64));
export const tool = { name: 'refund', version: '1' };
export const ref = { step, key, attempt: 1 };
export const args = { order: 'o-1' };
export const SETTLE_DELAY_MS = 2000;
export const NOT_AFTER = now + 1000;
export const READING_FROM = NOT_AFTER + CLOCK_SKEW_MS + SETTLE_DELAY_MS;
export const probed: Evidence = { kind: 'probe', note: 'GET /refunds/2' };

const PROBE = { sealing: false, timeoutMs: 100, initialMs: 1000, factor: 2, maxMs: 8000 };

export type Over = Partial<Omit<ToolContract, 'probe'>> & { readonly probe?: Partial<typeof PROBE> | null };

export const contract = (effect: EffectClass = 'irreversible', { probe = {}, ...over }: Over = {}): ToolContract =>
  ToolContract.parse({
    ...tool,
    pool: Pool.parse('pay'),
    effect,
    keyScope: 'run',
    input: {},
    output: {},
    retry: { attemptsMax: 3, initialMs: 100, maxMs: 1000, factor: 2 },
    timeoutMs: 500,
    queueMs: 1000,
    settleDelayMs: SETTLE_DELAY_MS,
    probe: probe === null ? null : { ...PROBE, ...probe },
    owner: 'payments@example.org',
    ...over,
  });

/** Jitter of 1: the whole pause. */
export const looking = (at = now, effect: EffectClass = 'irreversible', over: Over = {}): Looking => ({ at, contract: contract(effect, over), jitter: 1 });

export interface About {
  readonly effect?: EffectClass;
  readonly attempt?: number;
  readonly of?: number;
  readonly cause?: UnknownCause;
  readonly notAfter?: number | null;
  readonly at?: number;
  readonly contract?: Over | null;
  readonly more?: Partial<Command<'open'>['unknown']>;
}

export function open({ effect = 'irreversible', attempt = 1, of = 2, cause = 'deadline', notAfter = NOT_AFTER, at = now, contract: over = {}, more = {} }: About = {}): Command<'open'> {
  return {
    type: 'open',
    of,
    unknown: { step, key, attempt, cause, message: 'no end by its deadline', owner: null, about: { tool, effect, args, fence: 4, since: now - 500 }, ...(notAfter === null ? {} : { notAfter }), ...more },
    ...looking(at, effect, over ?? {}),
    ...(over === null ? { contract: null } : {}),
  };
}

/** A case as it stands in the stream. */
export const opened = (over: Partial<ReturnType<typeof CaseOpened>['data']> = {}): CaseEvent =>
  CaseOpened({
    ...ref,
    of: 2,
    tool,
    effect: 'irreversible',
    args,
    fence: 4,
    cause: 'deadline',
    message: 'no end by its deadline',
    since: now,
    owner: 'payments@example.org',
    remindAt: null,
    escalateAt: null,
    readingFrom: READING_FROM,
    keyKnownUntil: null,
    nextLookAt: now + 1000,
    because: 'its tool has a probe',
    ...over,
  });
export const sent = (probe = 1, issuedAt = now + 1000, attempt = 1): CaseEvent => ProbeSent({ ...ref, attempt, probe, issuedAt, answerBy: issuedAt + 200 });
export const concluded = (probe: number, answer: MessageOf<typeof ProbeConcluded>['data']['answer'], nextLookAt: number | null): CaseEvent => ProbeConcluded({ ...ref, probe, answer, nextLookAt, because: '' });

export const due = (at: number, effect: EffectClass = 'irreversible', over: Over = {}): Command<'due'> => ({ type: 'due', step, ...looking(at, effect, over) });
export const answered = (probe: number, answer: ProbeAnswer, at = now + 1100, { effect = 'irreversible', attempt = 1, contract: over = {} }: Pick<About, 'effect' | 'attempt'> & { contract?: Over } = {}): Command<'answered'> => ({
  type: 'answered',
  step,
  attempt,
  probe,
  answer,
  ...looking(at, effect, over),
});
export const ended = (outcome: 'succeeded' | 'rejected' | 'failed', at = now + 50): Command<'ended'> => ({ type: 'ended', step, outcome, ...looking(at) });

export const ann: Operator = { name: 'ann', roles: ['operator'] };
export const applied: ProbeAnswer = { status: 'applied', result: { value: { id: 're_1' } }, evidence: probed };
export const notApplied: ProbeAnswer = { status: 'not_applied', evidence: probed };
export const pending: ProbeAnswer = { status: 'pending' };
export const stillUnknown: ProbeAnswer = { status: 'still_unknown', message: 'the API answers 404 for young ids' };

type Asked = MessageOf<typeof ResolveCase>['data'];
export const APPLIED: Asked['verdict'] = { status: 'applied', result: { id: 're_7' } };
export const NOT_APPLIED: Asked['verdict'] = { status: 'not_applied' };
export const resolve = (verdict: Asked['verdict'], asked: Partial<Asked> = {}, more: Partial<Command<'resolve'>> = {}): Command<'resolve'> => ({
  type: 'resolve',
  asked: { command: 'c-1', by: ann, step, attempt: 1, verdict, reason: 'I looked', evidence: 'statement 7', ...asked },
  resultProblem: null,
  ...looking(READING_FROM),
  ...more,
});
export const assign = (asked: Partial<MessageOf<typeof AssignCase>['data']> = {}, over: Over = {}): Command<'assign'> => ({ type: 'assign', asked: { command: 'c-2', by: ann, step, attempt: 1, owner: 'bob', ...asked }, ...looking(now, 'irreversible', over) });

export const eventsOf = (decision: CaseDecision): readonly CaseEvent[] => (decision.kind === 'record' ? decision.events : []);

/** Plays commands one after the other, as the shell does. */
export function played(before: readonly CaseEvent[], ...commands: readonly CaseCommand[]): CaseEvent[] {
  const events = [...before];
  for (const command of commands) events.push(...eventsOf(given(...events).when(command)));
  return events;
}
