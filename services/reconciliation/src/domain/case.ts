import { unreachable } from '@holdfast/kernel';
import type { Attempt, caseMessages, EffectClass, Instant, Json, MessageOf, Named, OperationKey, ProbeAnswer, Step, UnknownCause, Verdict } from '@holdfast/protocol';

export type CaseEvent = MessageOf<(typeof caseMessages)[number]>;

/** What a case is about, from its opening on. */
export interface CaseFacts {
  readonly step: Step;
  readonly key: OperationKey;
  readonly attempt: Attempt;
  /** Version of the effect's stream that opened it. */
  readonly of: number;
  readonly tool: Named;
  readonly effect: EffectClass;
  readonly args: Json;
  readonly fence: number;
  readonly cause: UnknownCause;
  readonly message: string;
  readonly operationId: string | undefined;
  /** The effect is not sent again, whatever is found. */
  readonly last: boolean;
  readonly since: Instant;
  readonly owner: string | null;
  /** A reading issued earlier does not prove "not applied"; null: only a sealing probe does. */
  readonly readingFrom: Instant | null;
  readonly keyKnownUntil: Instant | null;
  /** When each probe was issued, by its number. */
  readonly probes: ReadonlyMap<number, Instant>;
  readonly lastAnswer: ProbeAnswer | { readonly status: 'no_answer' } | null;
  /** Answers that are in the stream already, by their token, so that each is recorded once. */
  readonly answered: ReadonlySet<string>;
}

export interface Outstanding {
  readonly probe: number;
  readonly answerBy: Instant;
}

export type OpenCase = CaseFacts & {
  readonly status: 'open';
  readonly nextLookAt: Instant | null;
  readonly outstanding: Outstanding | null;
  readonly remindAt: Instant | null;
  readonly escalateAt: Instant | null;
  /** Probes in a row that brought nothing, `pending` not counted. */
  readonly fruitless: number;
  /** Brought to someone, and why. */
  readonly escalated: ReadonlySet<string>;
};

export type SettledCase = CaseFacts & { readonly status: 'settled'; readonly verdict: Verdict; readonly by: 'late_result' | 'probe' | 'person' | 'policy' };
export type Case = OpenCase | SettledCase;

/** The cases of one run: the latest of each step, and the commands that were answered. */
export interface RunCases {
  readonly cases: ReadonlyMap<Step, Case>;
  readonly commands: ReadonlySet<string>;
}

export const noCases: RunCases = { cases: new Map(), commands: new Set() };

/** The target may know the operation key no more, and take it for a new one. */
export const isForgotten = ({ keyKnownUntil }: Case, at: Instant): boolean => keyKnownUntil !== null && at > keyKnownUntil;

/** Whether the effect may be sent again under its key without anybody knowing what became of it. */
export const takesKeyAgain = (of: Case, at: Instant): boolean => of.effect === 'idempotent' && of.cause !== 'partial_effect' && !of.last && !isForgotten(of, at);

/** When a case next needs attention by itself; null when only news can move it. */
export function dueAt(of: Case): Instant | null {
  if (of.status === 'settled') return null;
  const times = [of.outstanding === null ? of.nextLookAt : of.outstanding.answerBy, of.remindAt, of.escalateAt].filter((at) => at !== null);
  return times.length === 0 ? null : Math.min(...times);
}

export function evolve(run: RunCases, event: CaseEvent): RunCases {
  const { step } = event.data;
  if (event.type === 'CaseCommandRefused') return { ...run, commands: new Set(run.commands).add(event.data.command) };
  const before = run.cases.get(step);
  const after = event.type === 'CaseOpened' ? opened(event.data, before) : before && evolveOne(before, event);
  const command = 'command' in event.data ? event.data.command : undefined;
  return {
    cases: after === undefined ? run.cases : new Map(run.cases).set(step, after),
    commands: command === undefined ? run.commands : new Set(run.commands).add(command),
  };
}

/** A probe that is asked twice, since its task was delivered twice, may answer twice, and not the same. */
export const answerToken = (probe: number, status: ProbeAnswer['status']): string => `${probe}:${status}`;

/** The answer that settled it is in the stream with the verdict. */
function withSettling({ probes, answered }: Case, { by, readAt, verdict }: Extract<CaseEvent, { type: 'CaseSettled' }>['data']): ReadonlySet<string> {
  const [probe] = [...probes].find(([, issuedAt]) => issuedAt === readAt) ?? [];
  return by !== 'probe' || probe === undefined || (verdict.status !== 'applied' && verdict.status !== 'not_applied') ? answered : new Set(answered).add(answerToken(probe, verdict.status));
}

type Opened = Extract<CaseEvent, { type: 'CaseOpened' }>['data'];

function opened(data: Opened, before: Case | undefined): OpenCase {
  const { step, key, attempt, of, tool, effect, args, fence, cause, message, operationId, last = false, since, owner, readingFrom, keyKnownUntil, remindAt, escalateAt, nextLookAt } = data;
  // Numbers of probes go on where a case is opened anew: an answer still under way belongs to the attempt.
  const probes = before?.attempt === attempt ? before.probes : new Map<number, Instant>();
  const answered = before?.attempt === attempt ? before.answered : new Set<string>();
  return {
    ...{ step, key, attempt, of, tool, effect, args, fence, cause, message, operationId, last, since, owner, readingFrom, keyKnownUntil, probes, answered },
    ...{ status: 'open', nextLookAt, remindAt, escalateAt, outstanding: null, lastAnswer: null, fruitless: 0, escalated: new Set<string>() },
  };
}

function evolveOne(before: Case, event: Exclude<CaseEvent, { type: 'CaseOpened' | 'CaseCommandRefused' }>): Case {
  if (event.data.attempt !== before.attempt) return before;
  switch (event.type) {
    case 'ProbeSent': {
      const { probe, issuedAt, answerBy } = event.data;
      const probes = new Map(before.probes).set(probe, issuedAt);
      return before.status === 'open' ? { ...before, probes, outstanding: { probe, answerBy }, nextLookAt: null } : { ...before, probes };
    }
    case 'ProbeConcluded': {
      const { probe, answer, nextLookAt } = event.data;
      // No answer in time says nothing about one that comes after all.
      const answered = answer.status === 'no_answer' ? before.answered : new Set(before.answered).add(answerToken(probe, answer.status));
      if (before.status !== 'open') return { ...before, answered };
      const fruitless = answer.status === 'pending' ? 0 : before.fruitless + 1;
      const over = before.outstanding === null || before.outstanding.probe <= probe;
      return { ...before, answered, lastAnswer: answer, fruitless, ...(over ? { outstanding: null, nextLookAt } : {}) };
    }
    case 'CaseSettled': {
      const { step, key, attempt, of, tool, effect, args, fence, cause, message, operationId, last, since, owner, readingFrom, keyKnownUntil, probes, lastAnswer } = before;
      const answered = withSettling(before, event.data);
      const facts = { step, key, attempt, of, tool, effect, args, fence, cause, message, operationId, last, since, owner, readingFrom, keyKnownUntil, probes, lastAnswer, answered };
      return { ...facts, status: 'settled', verdict: event.data.verdict, by: event.data.by };
    }
    case 'CaseReminded':
      return before.status === 'open' ? { ...before, remindAt: event.data.remindAt } : before;
    case 'CaseEscalated':
      if (before.status !== 'open') return before;
      return {
        ...before,
        escalated: new Set(before.escalated).add(event.data.reason),
        ...(event.data.reason === 'too_old' ? { escalateAt: null } : {}),
        ...(event.data.nextLookAt === undefined ? {} : { nextLookAt: event.data.nextLookAt }),
      };
    case 'CaseAssigned':
      return { ...before, owner: event.data.owner };
    case 'CaseEvidenceAdded':
      return { ...before, answered: new Set(before.answered).add(answerToken(event.data.probe, event.data.answer.status)) };
    default:
      return unreachable(event);
  }
}
