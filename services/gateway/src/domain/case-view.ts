import type { caseMessages, EffectClass, Instant, Json, MessageOf, Named, OperationKey, ProbeAnswer, Step, UnknownCause, Verdict } from '@holdfast/protocol';

export type CaseEvent = MessageOf<(typeof caseMessages)[number]>;

/** A case as people see it. */
export interface CaseView {
  readonly step: Step;
  readonly attempt: number;
  readonly key: OperationKey;
  readonly status: 'open' | 'settled';
  readonly tool: Named;
  readonly effect: EffectClass;
  readonly args: Json;
  readonly cause: UnknownCause;
  readonly message: string;
  readonly operationId: string | null;
  readonly since: Instant;
  readonly owner: string | null;
  readonly escalated: readonly string[];
  readonly nextLookAt: Instant | null;
  readonly readingFrom: Instant | null;
  readonly probes: number;
  readonly lastAnswer: ProbeAnswer | { readonly status: 'no_answer' } | null;
  readonly verdict: Verdict | null;
  readonly by: string | null;
  readonly person: string | null;
  readonly forced: boolean;
  readonly settledAt: Instant | null;
  readonly updatedAt: Instant;
}

/** One row a step: a later attempt of the same step takes the place of the one before. */
export function evolveCase(before: CaseView | null, event: CaseEvent, at: Instant): CaseView | null {
  if (event.type === 'CaseOpened') {
    const { step, attempt, key, tool, effect, args, cause, message, operationId, since, owner, nextLookAt, readingFrom } = event.data;
    const facts = { step, attempt, key, tool, effect, args, cause, message, operationId: operationId ?? null, since, owner, nextLookAt, readingFrom };
    return { ...facts, status: 'open', escalated: [], probes: before?.attempt === attempt ? before.probes : 0, lastAnswer: null, verdict: null, by: null, person: null, forced: false, settledAt: null, updatedAt: at };
  }
  if (before === null || event.type === 'CaseCommandRefused' || event.data.attempt !== before.attempt) return before;
  const known: CaseView = { ...before, updatedAt: at };
  switch (event.type) {
    case 'ProbeSent':
      return { ...known, probes: Math.max(known.probes, event.data.probe), nextLookAt: event.data.answerBy };
    case 'ProbeConcluded':
      return { ...known, lastAnswer: event.data.answer, nextLookAt: event.data.nextLookAt };
    case 'CaseSettled':
      return { ...known, status: 'settled', verdict: event.data.verdict, by: event.data.by, person: event.data.person?.name ?? null, forced: event.data.forced, settledAt: at, nextLookAt: null };
    case 'CaseEscalated':
      return { ...known, escalated: [...new Set([...known.escalated, event.data.reason])] };
    case 'CaseAssigned':
      return { ...known, owner: event.data.owner };
    case 'CaseReminded':
    case 'CaseEvidenceAdded':
      return known;
  }
}
