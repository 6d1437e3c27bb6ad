import { describe, expect, it } from '@jest/globals';
import { CaseOpened, EffectRetryScheduled, OperationKey, Pool, ProbeConcluded, ProbeEffect, ProbeReported, ProbeSent, RunId, Step, ToolContract, WorkerId, type Message } from '@holdfast/protocol';
import type { ContractBook, Inbound, Turn } from '@holdfast/runtime';
import { evolve, noCases, type CaseEvent, type RunCases } from '../src/domain/case.js';
import { askedBefore } from '../src/domain/decide.js';
import { CaseHandlers } from '../src/handlers.js';
import { reconciliation } from '../src/routes.js';

const at = 100_000;
const run = RunId.parse('run-1');
const step = Step.parse('1');
const key = OperationKey.parse('1'.repeat(64));
const tool = { name: 'refund', version: '1' };
const about = { step, key, attempt: 1 };
const contract = ToolContract.parse({
  ...{ ...tool, pool: Pool.parse('pay'), effect: 'irreversible', keyScope: 'run', input: {}, output: {}, retry: { attemptsMax: 3, initialMs: 100, maxMs: 1000, factor: 2 } },
  ...{ timeoutMs: 500, queueMs: 1000, settleDelayMs: 0, owner: null, probe: { sealing: false, timeoutMs: 400 } },
});
const book: ContractBook = { tool: () => contract, agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() };
const handlers = new CaseHandlers(book);

const opened = (attempt = 1, of = 2): CaseEvent =>
  CaseOpened({
    ...{ ...about, attempt, of, tool, effect: 'irreversible', args: { amount: 5 }, fence: 2, cause: 'host_lost', message: 'its host was lost', since: at, owner: null },
    ...{ remindAt: null, escalateAt: null, readingFrom: at + 1000, keyKnownUntil: null, nextLookAt: at, because: 'nobody knows' },
  });
const sent = (probe: number, issuedAt: number): CaseEvent => ProbeSent({ ...about, probe, issuedAt, answerBy: issuedAt + 800 });
const task = (probe: number, issuedAt?: number): ReturnType<typeof ProbeEffect>['data'] => ProbeEffect({ ...about, tool, fence: 2, args: { amount: 5 }, probe, answerBy: at + 800, timeoutMs: 400, ...(issuedAt === undefined ? {} : { issuedAt }) }).data;
const after = (...events: CaseEvent[]): RunCases => events.reduce(evolve, noCases);
const caseAfter = (...events: CaseEvent[]) => after(...events).cases.get(step);

function turnOver(before: RunCases, now: number) {
  const recorded: CaseEvent[] = [];
  const told: Message[] = [];
  let cases = before;
  const turn: Turn<RunCases, CaseEvent> = {
    lane: 0, now, random: () => 0, inHand: null,
    state: () => cases,
    tenantOf: () => 'default',
    record: (_stream, _tenant, event) => {
      recorded.push(event);
      cases = evolve(cases, event);
    },
    send: (_topic, _stream, _tenant, message) => told.push(message),
    seqAhead: () => 1, open: () => [], wake: () => undefined, shared: () => null, putShared: () => undefined, park: () => undefined, answered: () => undefined, count: () => undefined,
  };
  return { turn, recorded, told };
}

const inbound = <Data>(type: string, data: Data, version?: number): Inbound<Data> => ({
  data,
  envelope: { id: 'x', type, source: 's', subject: run, time: at, tenant: 'default', ...(version === undefined ? {} : { version }) },
  record: { topic: 't', lane: 0, offset: 1, key: run, headers: {}, value: '{}', time: at },
});

describe('a question whose event is lost', () => {
  it('is recorded as asked, with the time at which it was issued', () => {
    expect(askedBefore(task(2, at - 5), caseAfter(opened(), sent(1, at - 900)), at)).toEqual({ type: 'ProbeSent', data: { ...about, probe: 2, issuedAt: at - 5, answerBy: at + 800 } });
    expect(askedBefore(task(1), caseAfter(opened()), at)).toMatchObject({ data: { issuedAt: at } });
  });

  it.each([
    ['the case holds it', caseAfter(opened(), sent(1, at))],
    ['the case is about another attempt', caseAfter(opened(2, 6))],
    ['its case is lost as well', undefined],
  ])('is nothing new when %s', (_, of) => expect(askedBefore(task(1), of, at)).toBeNull());

  it('is read back from the pools’ topics, and nothing else is', () => {
    const { turn, recorded, told } = turnOver(after(opened()), at);
    const { rebuild } = reconciliation(handlers);
    const [route] = rebuild?.sent ?? [];
    expect([route?.topic('tool.tasks.pay'), route?.topic('run.tasks.pay'), route?.message.type]).toEqual([true, false, 'ProbeEffect']);
    route?.handle(inbound('ProbeEffect', task(1, at)), turn);
    expect([recorded, told]).toEqual([[sent(1, at)], []]);
    expect([rebuild?.sent?.length, rebuild?.reopen, rebuild?.shared]).toEqual([1, undefined, undefined]);
  });
});

describe('after a rebuild', () => {
  it('a question without an answer is over at its time, and the next one has another number and time', () => {
    const { turn, recorded, told } = turnOver(after(opened(), sent(1, at)), at + 800);
    handlers.due(run, turn);
    expect(recorded).toMatchObject([ProbeConcluded({ ...about, probe: 1, answer: { status: 'no_answer' }, nextLookAt: expect.any(Number) as never, because: expect.any(String) as never })]);
    const later = turnOver(after(opened(), sent(1, at), ...recorded), at + 60_000);
    handlers.due(run, later.turn);
    expect([told, later.told]).toMatchObject([[], [{ type: 'ProbeEffect', data: { probe: 2, issuedAt: at + 60_000, answerBy: at + 60_800 } }]]);
  });

  it('an answer to a question that is lost proves nothing for the one that got its number', () => {
    const answer = (issuedAt?: number) => {
      const { turn, recorded } = turnOver(after(opened(), sent(1, at + 1000)), at + 1100);
      handlers.answered(inbound('ProbeReported', ProbeReported({ ...about, probe: 1, answer: { status: 'not_applied', evidence: { kind: 'probe' } }, worker: WorkerId.parse('w'), ...(issuedAt === undefined ? {} : { issuedAt }) }).data), turn);
      return recorded.map(({ type }) => type);
    };
    expect(answer(at)).toEqual([]);
    expect(answer(at + 1000)).toEqual(['CaseSettled']);
    expect(answer()).toEqual(['CaseSettled']); // A host of a version that does not say.
  });

  it('an earlier attempt’s way on, read again, settles no case of a later attempt', () => {
    const retried = (version: number): string[] => {
      const { turn, recorded } = turnOver(after(opened(), opened(2, 6)), at);
      handlers.ended('failed')(inbound('EffectRetryScheduled', EffectRetryScheduled({ ...about, failure: { class: 'unknown_outcome', message: 'x' }, because: 'x', retryAt: at }).data, version), turn);
      return recorded.map(({ type }) => type);
    };
    expect(retried(4)).toEqual([]);
    expect(retried(7)).toEqual(['CaseSettled']);
  });
});
