import { record } from '@holdfast/kernel';
import { CaseAssigned, CaseCommandRefused, CaseSettled, isoTime, type MessageOf, type Operator } from '@holdfast/protocol';
import { takesKeyAgain, type Case } from './case.js';
import type { CaseDecision, Command } from './commands.js';

type RefuseReason = MessageOf<typeof CaseCommandRefused>['data']['reason'];

/** Role that decides cases where a contract names none. */
export const DEFAULT_VERDICT_ROLE = 'operator';
/** Whoever has it may do everything. */
const ADMIN_ROLE = 'admin';

const hasRole = ({ roles }: Operator, role: string): boolean => roles.includes(role) || roles.includes(ADMIN_ROLE);

/** A person's verdict. What speaks against it is said with the reason, once; `force` overrules what is a matter of proof, never authority. */
export function resolve(command: Command<'resolve'>, of: Case | undefined): CaseDecision {
  const { asked, at, contract, resultProblem } = command;
  const { attempt, verdict, reason, evidence, by, force = false } = asked;
  const refuse = (because: RefuseReason, message: string): CaseDecision => record(CaseCommandRefused({ step: asked.step, attempt, command: asked.command, reason: because, message, by }));
  if (of === undefined) return refuse('case_unknown', `step ${asked.step} has no case`);
  const role = contract?.ageing?.verdictRole ?? DEFAULT_VERDICT_ROLE;
  if (!hasRole(by, role)) return refuse('role_missing', `a verdict on ${of.tool.name} needs the role "${role}"; ${by.name} has ${by.roles.length === 0 ? 'none' : by.roles.map((each) => `"${each}"`).join(', ')}`);
  if (of.attempt !== attempt) return refuse('other_attempt', `the case is about attempt ${of.attempt} of step ${of.step}, the verdict about attempt ${attempt}: look at it again`);
  const against = proofAgainst(of, verdict.status);
  if (of.status === 'settled' && (against === null || !force)) {
    return against === null ? refuse('already_settled', `it was settled as ${of.verdict.status} by ${of.by}`) : refuse('against_proof', `${against}; with force the verdict is recorded as contradicting it`);
  }
  if (against !== null && !force) return refuse('against_proof', `${against}; with force the verdict overrules it, and is marked so`);
  if (verdict.status === 'applied' && resultProblem !== null) return refuse('invalid_result', `the result is none that ${of.tool.name} can have: ${resultProblem}`);
  // Nobody reads the target in the future.
  const readAt = Math.min(asked.readAt ?? at, at);
  const early = verdict.status === 'not_applied' ? tooEarly(command, of, readAt) : null;
  if (early !== null && !force) return refuse('too_early', early);
  return record(
    CaseSettled({
      step: of.step,
      key: of.key,
      attempt,
      verdict: verdict.status === 'applied' ? { status: 'applied', result: { value: verdict.result } } : { status: 'not_applied' },
      by: 'person',
      evidence: { kind: 'person', note: evidence, at: readAt },
      because: `${by.name}: ${reason}`,
      readAt,
      sealing: false,
      forced: force && (against !== null || early !== null),
      person: by,
      command: asked.command,
    }),
  );
}

/** What a probe has proved to the contrary, in words; null when nothing. */
function proofAgainst(of: Case, verdict: 'applied' | 'not_applied'): string | null {
  if (of.status === 'settled') return of.by === 'probe' && of.verdict.status !== verdict ? `a probe has proved that it was ${of.verdict.status.replace('_', ' ')}` : null;
  return verdict === 'not_applied' && of.lastAnswer?.status === 'pending' ? 'the target has said that it is working on it' : null;
}

function tooEarly({ at, contract }: Command<'resolve'>, of: Case, readAt: number): string | null {
  // All that it costs is the same key again. Where none follows, the verdict is the last word, and what took effect after it would stand unseen.
  if (takesKeyAgain(of, at) && of.attempt < (contract?.retry.attemptsMax ?? 0)) return null;
  if (of.readingFrom === null) return `the contract of ${of.tool.name} names no time after which nothing of the attempt can take effect (settleDelay): that it was not applied can't be known by looking; with force it is taken on your word`;
  return readAt >= of.readingFrom ? null : `the attempt can still take effect until ${isoTime(of.readingFrom)}: look then, and decide`;
}

export function assign({ asked, contract }: Command<'assign'>, of: Case | undefined): CaseDecision {
  const { step, attempt, command, by, owner } = asked;
  const refuse = (reason: RefuseReason, message: string): CaseDecision => record(CaseCommandRefused({ step, attempt, command, reason, message, by }));
  if (of === undefined) return refuse('case_unknown', `step ${step} has no case`);
  const role = contract?.ageing?.verdictRole ?? DEFAULT_VERDICT_ROLE;
  if (!hasRole(by, role) && !hasRole(by, DEFAULT_VERDICT_ROLE)) return refuse('role_missing', `to assign a case of ${of.tool.name} needs the role "${role}" or "${DEFAULT_VERDICT_ROLE}"`);
  if (of.status === 'settled') return refuse('already_settled', `it was settled as ${of.verdict.status} by ${of.by}`);
  if (of.attempt !== attempt) return refuse('other_attempt', `the case is about attempt ${of.attempt} of step ${of.step}`);
  return record(CaseAssigned({ step, key: of.key, attempt, owner, by, command }));
}
