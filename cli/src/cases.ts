import { fold } from '@holdfast/kernel';
import { caseMessages, decoder, EffectStep, isoTime, topics, type Json, type MessageOf, type Step } from '@holdfast/protocol';
import { dueAt, evolve, noCases, type Case, type CaseEvent } from '@holdfast/reconciliation/domain';
import { readStreams, type TopicStream } from './audit/read-events.js';
import { isObject } from './json.js';
import { CliError } from './failure.js';

/** A case as commands show it. Times are RFC 3339; null: never, or nobody. */
export interface CaseView {
  readonly case: string;
  readonly run: string;
  readonly tenant: string;
  readonly step: string;
  readonly attempt: number;
  readonly status: 'open' | 'settled';
  readonly tool: string;
  readonly effect: string;
  readonly cause: string;
  readonly message: string;
  readonly since: string;
  readonly owner: string | null;
  readonly escalated: readonly string[];
  readonly nextLook: string | null;
  /** From when on a look that finds nothing proves "not applied". */
  readonly readingFrom: string | null;
  readonly operationKey: string;
  readonly operationId: string | null;
  readonly args: Json;
  readonly probes: number;
  readonly lastAnswer: Json;
  readonly verdict: Json;
  readonly by: string | null;
}

const decode = decoder(caseMessages);

/** A case's name: run, step and attempt. A run id may hold slashes; what follows the last two is never part of it. */
export const caseName = (run: string, step: string, attempt: number): string => `${run}/${step}/${attempt}`;

export interface CaseName {
  readonly run: string;
  readonly step: Step;
  readonly attempt: number;
}

export function parseCaseName(name: string): CaseName {
  const [, run, text, attempt] = /^(.+)\/([1-9][\d.]*(?:~\d+)?)\/(\d+)$/.exec(name) ?? [];
  const step = EffectStep.safeParse(text);
  if (run === undefined || !step.success) throw new CliError(`"${name}" names no case: a case is RUN/STEP/ATTEMPT, as \`holdfast cases list\` prints it`);
  return { run, step: step.data, attempt: Number(attempt) };
}

const iso = (at: number | null): string | null => (at === null ? null : isoTime(at));

function viewOf(run: string, tenant: string, of: Case): CaseView {
  return {
    case: caseName(run, of.step, of.attempt),
    run,
    tenant,
    step: of.step,
    attempt: of.attempt,
    status: of.status,
    tool: `${of.tool.name}@${of.tool.version}`,
    effect: of.effect,
    cause: of.cause,
    message: of.message,
    since: isoTime(of.since),
    owner: of.owner,
    escalated: of.status === 'open' ? [...of.escalated] : [],
    nextLook: of.status === 'open' ? iso(of.outstanding === null ? of.nextLookAt : dueAt(of)) : null,
    readingFrom: iso(of.readingFrom),
    operationKey: of.key,
    operationId: of.operationId ?? null,
    args: of.args,
    probes: of.probes.size,
    lastAnswer: of.lastAnswer as Json,
    verdict: of.status === 'settled' ? (of.verdict as Json) : null,
    by: of.status === 'settled' ? of.by : null,
  };
}

const eventsOf = ({ events }: TopicStream): CaseEvent[] =>
  events.flatMap(({ envelope, data }) => {
    const decoded = decode(envelope.type, data);
    return decoded.ok ? [decoded.message] : [];
  });

/** Every case, or those of one run, from the topic alone; the latest of each step. */
export async function readCases(brokers: readonly string[], run?: string): Promise<CaseView[]> {
  const streams = await readStreams(brokers, topics.reconciliationEvents, run);
  return [...streams.values()].flatMap((stream) => {
    const tenant = stream.events[0]?.envelope.tenant ?? 'default';
    return [...fold(evolve, noCases, eventsOf(stream)).cases.values()].map((of) => viewOf(stream.stream, tenant, of));
  });
}

export interface HistoryEntry {
  readonly at: string;
  readonly event: string;
  readonly what: string;
}

/** What happened to one case, in order. */
export async function caseHistory(brokers: readonly string[], run: string, step: string, attempt: number): Promise<HistoryEntry[]> {
  const stream = (await readStreams(brokers, topics.reconciliationEvents, run)).get(run);
  return (stream?.events ?? []).flatMap(({ envelope, data }) => {
    const decoded = decode(envelope.type, data);
    if (!decoded.ok || decoded.message.data.step !== step || decoded.message.data.attempt !== attempt) return [];
    return [{ at: isoTime(envelope.time), event: envelope.type, what: inWords(decoded.message) }];
  });
}

function inWords({ type, data }: MessageOf<(typeof caseMessages)[number]>): string {
  switch (type) {
    case 'CaseOpened':
      return `${data.cause}: ${data.message} (${data.because})`;
    case 'ProbeSent':
      return `probe ${data.probe} sent, answer due by ${isoTime(data.answerBy)}`;
    case 'ProbeConcluded':
      return `probe ${data.probe}: ${data.answer.status}; ${data.because}`;
    case 'CaseSettled':
      return `${data.verdict.status} by ${data.by}${data.forced ? ', forced' : ''}: ${data.because}${data.evidence.note === undefined ? '' : ` [${data.evidence.note}]`}`;
    case 'CaseReminded':
      return `${data.owner ?? 'nobody'} was reminded`;
    case 'CaseEscalated':
      return `brought to ${data.to ?? 'whoever watches'} (${data.reason}): ${data.message}`;
    case 'CaseAssigned':
      return `${data.by.name} gave it to ${data.owner ?? 'nobody'}`;
    case 'CaseEvidenceAdded':
      return `probe ${data.probe} answered afterwards: ${data.answer.status}${data.contradicts ? ', which contradicts the verdict' : ''}`;
    case 'CaseCommandRefused':
      return `${data.by.name} was refused (${data.reason}): ${data.message}`;
  }
}

/** What went wrong beyond cases: second firings, and ends that contradict what was settled. */
export async function readAlarms(brokers: readonly string[]): Promise<{ at: string; run: string; event: string; message: string }[]> {
  const streams = await readStreams(brokers, topics.effectEvents);
  return [...streams.values()].flatMap(({ stream, events }) =>
    events
      .filter(({ envelope }) => envelope.type === 'DuplicateEffectDetected' || envelope.type === 'VerdictContradicted')
      .map(({ envelope, data }) => ({ at: isoTime(envelope.time), run: stream, event: envelope.type, message: messageIn(data) })),
  );
}

const messageIn = (data: Json): string => (isObject(data) && typeof data['message'] === 'string' ? data['message'] : '');
