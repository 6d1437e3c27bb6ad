import { ignore, record, unreachable, type Decider } from '@holdfast/kernel';
import { CaseEscalated, CaseEvidenceAdded, CaseOpened, CaseReminded, CaseSettled, isoTime, ProbeConcluded, ProbeSent, readingFrom, type Evidence, type Instant, type MessageOf, type ProbeAnswer, type ProbeEffect, type Verdict } from '@holdfast/protocol';
import { answerToken, evolve, isForgotten, noCases, takesKeyAgain, type Case, type CaseEvent, type OpenCase, type RunCases } from './case.js';
import type { CaseCommand, CaseDecision, Command, IgnoreReason, Looking } from './commands.js';
import { assign, resolve } from './person.js';
import { DEFAULT_PROBE_TIMEOUT_MS, firstLookAt, FRUITLESS_BEFORE_NEXT_STEP, nextLookAt, REFIRES_MAX } from './schedule.js';

export function decide(command: CaseCommand, run: RunCases): CaseDecision {
  switch (command.type) {
    case 'open':
      return open(command, run.cases.get(command.unknown.step));
    case 'due':
      return due(command, run.cases.get(command.step));
    case 'answered':
      return answered(command, run.cases.get(command.step));
    case 'ended':
      return ended(command, run.cases.get(command.step));
    case 'resolve':
      return run.commands.has(command.asked.command) ? ignore('command_answered') : resolve(command, run.cases.get(command.asked.step));
    case 'assign':
      return run.commands.has(command.asked.command) ? ignore('command_answered') : assign(command, run.cases.get(command.asked.step));
    default:
      return unreachable(command);
  }
}

export const caseDecider: Decider<CaseCommand, RunCases, CaseEvent, IgnoreReason, never> = { initial: noCases, decide, evolve };

/** `record` of what may turn out to be nothing. */
function recorded(events: readonly CaseEvent[]): CaseDecision {
  const [first, ...rest] = events;
  return first === undefined ? ignore('not_due') : record(first, ...rest);
}

function open(command: Command<'open'>, before: Case | undefined): CaseDecision {
  const { unknown, of, at, contract } = command;
  if (before !== undefined && of <= before.of) return ignore('opened_before');
  const { step, key, attempt, cause, message, owner, notAfter, operationId, proved, last } = unknown;
  const { tool, effect, args, fence, since } = unknown.about;
  const ageing = contract?.ageing ?? {};
  const lookAt = firstLookAt(command, effect);
  const remembered = contract?.targetRemembersKeysForMs;
  const opening = CaseOpened({
    step,
    key,
    attempt,
    of,
    tool,
    effect,
    args,
    fence,
    cause,
    message,
    ...(operationId === undefined ? {} : { operationId }),
    ...(proved === undefined ? {} : { proved }),
    ...(last === undefined ? {} : { last }),
    since: at,
    owner: owner ?? contract?.owner ?? null,
    remindAt: ageing.remindAfterMs === undefined ? null : at + ageing.remindAfterMs,
    escalateAt: ageing.escalateAfterMs === undefined ? null : at + ageing.escalateAfterMs,
    readingFrom: notAfter === undefined ? null : readingFrom(contract, notAfter),
    keyKnownUntil: remembered === undefined ? null : (since ?? at) + remembered,
    nextLookAt: lookAt,
    because: contract?.probe ? 'its tool has a probe' : effect === 'idempotent' && lookAt !== null ? 'its target is idempotent: the same key can be sent again' : 'its tool has no probe: a person must look',
  });
  return lookAt === null ? record<CaseEvent>(opening, escalation({ step, key, attempt, owner: opening.data.owner }, contract, 'nothing_helps', `nobody but a person can say whether ${tool.name} happened: ${message}`)) : record(opening);
}

type Ref = Pick<Case, 'step' | 'key' | 'attempt' | 'owner'>;
const refOf = ({ step, key, attempt }: Pick<Case, 'step' | 'key' | 'attempt'>): Pick<Case, 'step' | 'key' | 'attempt'> => ({ step, key, attempt });

const escalation = (of: Ref, contract: Looking['contract'], reason: 'too_old' | 'nothing_helps' | 'contradictory', message: string, lookAt?: Instant | null): CaseEvent =>
  CaseEscalated({ ...refOf(of), to: contract?.ageing?.escalateTo ?? of.owner, reason, message, ...(lookAt === undefined ? {} : { nextLookAt: lookAt }) });

function due(command: Command<'due'>, of: Case | undefined): CaseDecision {
  if (of?.status !== 'open') return ignore('not_due');
  return recorded([...aged(command, of), ...looked(command, of)]);
}

/** Growing old closes nothing: it brings the case to people. */
function aged({ at, contract }: Looking, of: OpenCase): CaseEvent[] {
  const events: CaseEvent[] = [];
  if (of.remindAt !== null && at >= of.remindAt) {
    const everyMs = contract?.ageing?.remindAfterMs;
    events.push(CaseReminded({ ...refOf(of), owner: of.owner, openForMs: at - of.since, remindAt: everyMs === undefined ? null : at + everyMs }));
  }
  if (of.escalateAt !== null && at >= of.escalateAt) events.push(escalation(of, contract, 'too_old', `open since ${isoTime(of.since)}: ${of.message}`));
  return events;
}

function looked(command: Looking, of: OpenCase): CaseEvent[] {
  const { at, contract } = command;
  if (of.outstanding !== null) {
    if (at < of.outstanding.answerBy) return [];
    const { probe } = of.outstanding;
    return concluded(command, of, probe, { status: 'no_answer' }, 'no answer by the time it was due: the probe or its host was lost');
  }
  if (of.nextLookAt === null || at < of.nextLookAt) return [];
  const policy = contract?.probe;
  if (!policy) return sameKeyAgain(command, of);
  const probe = of.probes.size + 1;
  return [ProbeSent({ ...refOf(of), probe, issuedAt: at, answerBy: at + 2 * (policy.timeoutMs ?? DEFAULT_PROBE_TIMEOUT_MS) })];
}

/** The last thing that Holdfast may do by itself. */
function sameKeyAgain({ at, contract }: Looking, of: OpenCase): CaseEvent[] {
  const spent = (contract?.retry.attemptsMax ?? 0) + REFIRES_MAX;
  if (takesKeyAgain(of, at) && of.attempt < spent) {
    return [settled(of, { status: 'same_key_again' }, 'policy', { kind: 'ledger', at }, 'nobody can say whether it happened, and the target takes the same key again', { readAt: null, sealing: false })];
  }
  const because = of.last ? 'its run is over, and no other attempt follows' : isForgotten(of, at) ? 'the target may have forgotten the key' : `${of.attempt} attempts brought no end`;
  if (of.escalated.has('nothing_helps')) return [];
  // Where no probe can be asked either, only a person or a late result moves it from here on.
  return [escalation(of, contract, 'nothing_helps', `${because}: ${of.message}`, contract?.probe ? undefined : null)];
}

/** The event that a question shows to have been decided, where the case does not hold it; null when it does, or when the case itself is lost. */
export function askedBefore({ step, key, attempt, probe, answerBy, issuedAt }: MessageOf<typeof ProbeEffect>['data'], of: Case | undefined, sentAt: Instant): CaseEvent | null {
  if (of?.attempt !== attempt || of.probes.has(probe)) return null;
  return ProbeSent({ step, key, attempt, probe, issuedAt: issuedAt ?? sentAt, answerBy });
}

interface Reading {
  readonly readAt: Instant | null;
  readonly sealing: boolean;
}

const settled = (of: Case, verdict: Verdict, by: 'late_result' | 'probe' | 'policy', evidence: Evidence, because: string, reading: Reading): CaseEvent =>
  CaseSettled({ ...refOf(of), verdict, by, evidence, because, ...reading, forced: false });

/** What an answer that settles nothing leads to. */
function concluded(command: Looking, of: OpenCase, probe: number, answer: ProbeAnswer | { status: 'no_answer' }, because: string, notBefore: Instant = 0): CaseEvent[] {
  const { contract } = command;
  const fruitless = answer.status === 'pending' ? 0 : of.fruitless + 1;
  const lookAt = Math.max(notBefore, nextLookAt(command, fruitless, of.probes.size));
  const event = ProbeConcluded({ ...refOf(of), probe, answer, nextLookAt: lookAt, because });
  if (fruitless < FRUITLESS_BEFORE_NEXT_STEP) return [event];
  if (of.effect === 'idempotent') {
    const next = sameKeyAgain(command, of);
    return [event, ...next];
  }
  return of.escalated.has('nothing_helps') ? [event] : [event, escalation(of, contract, 'nothing_helps', `${fruitless} looks brought nothing (${because}): ${of.message}`)];
}

function answered(command: Command<'answered'>, of: Case | undefined): CaseDecision {
  const { attempt, probe, answer, contract } = command;
  if (of === undefined) return ignore('case_unknown');
  if (of.attempt !== attempt) return ignore('other_attempt');
  const issuedAt = of.probes.get(probe);
  // A number may have been given out before by a service that lost its database: that reading is older than it looks.
  if (issuedAt === undefined || (command.issuedAt ?? issuedAt) !== issuedAt) return ignore('probe_unknown');
  if (of.answered.has(answerToken(probe, answer.status))) return ignore('answered_before');
  if (of.status === 'settled') return afterwards(command, of, answer);
  const sealing = contract?.probe?.sealing === true;
  switch (answer.status) {
    case 'applied':
      return record(settled(of, { status: 'applied', result: answer.result }, 'probe', answer.evidence, 'the target has the effect under this operation key', { readAt: issuedAt, sealing }));
    case 'not_applied': {
      const proves = sealing || (of.readingFrom !== null && issuedAt >= of.readingFrom);
      if (proves) return record(settled(of, { status: 'not_applied' }, 'probe', answer.evidence, sealing ? 'the target has nothing under this operation key, and the attempt is voided there' : 'the target has nothing under this operation key, and nothing of the attempt can take effect any more', { readAt: issuedAt, sealing }));
      // An effect that may fire again needs no certainty; what it costs is another attempt under the same key.
      const [again] = of.effect === 'idempotent' ? sameKeyAgain(command, of) : [];
      if (again?.type === 'CaseSettled') return record<CaseEvent>(ProbeConcluded({ ...refOf(of), probe, answer, nextLookAt: null, because: 'the target has nothing yet, and takes the same key again' }), again);
      if (of.readingFrom === null) return recorded(concluded(command, of, probe, answer, 'the target has nothing yet, and the contract names no time after which that is final'));
      return recorded(concluded(command, { ...of, fruitless: -1 }, probe, answer, 'the target has nothing yet, and the attempt might still take effect', of.readingFrom));
    }
    case 'pending':
      return recorded(concluded(command, of, probe, answer, 'the target is still working on it'));
    case 'still_unknown':
      return recorded(concluded(command, of, probe, answer, answer.message));
    default:
      return unreachable(answer);
  }
}

/** An answer after the verdict is kept; one that says the opposite is brought to people. */
function afterwards({ probe, answer, contract, at }: Command<'answered'>, of: Extract<Case, { status: 'settled' }>, { status }: ProbeAnswer): CaseDecision {
  const said = of.verdict.status === 'ended' ? (of.verdict.outcome === 'succeeded' ? 'applied' : 'not_applied') : of.verdict.status;
  const final = contract?.probe?.sealing === true || (of.readingFrom !== null && (of.probes.get(probe) ?? at) >= of.readingFrom);
  const contradicts = (status === 'applied' && said === 'not_applied') || (status === 'not_applied' && said === 'applied' && final);
  const evidence = CaseEvidenceAdded({ ...refOf(of), probe, answer, contradicts });
  return contradicts ? record<CaseEvent>(evidence, escalation(of, contract, 'contradictory', `the case was settled as ${said} by ${of.by}, and probe ${probe} answers ${status}`)) : record(evidence);
}

/** The effect got its end without the case: a late result, as good as any answer. */
function ended({ outcome, at }: Command<'ended'>, of: Case | undefined): CaseDecision {
  if (of === undefined) return ignore('case_unknown');
  if (of.status === 'settled') return ignore('already_settled');
  return record(settled(of, { status: 'ended', outcome }, 'late_result', { kind: 'ledger', at }, `its own end came late: ${outcome}`, { readAt: null, sealing: false }));
}
