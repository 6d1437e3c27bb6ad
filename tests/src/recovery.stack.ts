import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { showRun } from '@holdfast/cli';
import { FailureClass, topics, type EffectClass, type Json } from '@holdfast/protocol';
import { defineTool, Failed, stillUnknown, type ServedWorker, type ToolDefinition } from '@holdfast/sdk';
import { z } from 'zod';
import { eventually } from './support/eventually.js';
import { STACK_LIMIT_MS, TestStack, type Seen } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

/** What became of an effect whose every attempt fails so: how often it was fired, counted at the tool, and the ledger's last word with its reason. */
interface Becomes {
  readonly fired: number;
  readonly last: 'EffectFailed' | 'EffectRejected' | 'EffectOutcomeUnknown';
  readonly data: Readonly<Record<string, unknown>>;
}
type Cell = (of: FailureClass) => Becomes;

const said = (of: FailureClass): string => `it was ${of}`;
const ended = (fired: number, because: (of: FailureClass) => string, failure: Readonly<Record<string, unknown>> = {}): Cell => (of) => ({ fired, last: 'EffectFailed', data: { attempt: fired, because: because(of), failure: expect.objectContaining({ class: of, ...failure }) } });
const notAgain = ended(1, (of) => `${of} is not tried again`);
const mended = ended(1, (of) => `${of}: the agent may mend its call once`, { repairable: true });
const spent = (attempts: number): Cell => ended(attempts, (of) => `${of}: all ${attempts} attempts are spent`);
const rejected: Cell = (of) => ({ fired: 1, last: 'EffectRejected', data: { attempt: 1, reason: said(of) } });
const doubt = (fired: number, message: (of: FailureClass) => string, cause = 'may_have_applied'): Cell => (of) => ({ fired, last: 'EffectOutcomeUnknown', data: { attempt: fired, cause, message: message(of), owner: 'the desk' } });
/** Its attempts are spent, and the change may stand all the same. */
const leftOpen = doubt(3, (of) => `${said(of)}; all 3 attempts are spent`);
/** The host itself can't say, and calls it so. */
const unsure = doubt(1, (of) => `${of}: ${said(of)}`);
const known = doubt(1, said);
const partly = (message: (of: FailureClass) => string) => doubt(1, message, 'partial_effect');

/** The recovery policy, whole: failure class by effect class; the last column where the tool states that nothing was applied. */
const table: Readonly<Record<FailureClass, readonly [pure: Cell, idempotent: Cell, irreversible: Cell, irreversibleNotApplied: Cell]>> = {
  invalid_request: [mended, mended, mended, mended],
  invalid_output: [mended, mended, unsure, known],
  permission_denied: [notAgain, notAgain, notAgain, notAgain],
  policy_denied: [notAgain, notAgain, notAgain, notAgain],
  business_rejected: [rejected, rejected, rejected, rejected],
  human_rejected: [rejected, rejected, rejected, rejected],
  transient: [spent(3), leftOpen, unsure, spent(3)],
  overloaded: [spent(3), leftOpen, unsure, spent(3)],
  partial_effect: [notAgain, partly(said), partly((of) => `${of}: ${said(of)}`), partly(said)],
  unknown_outcome: [spent(3), leftOpen, unsure, known],
  concurrency_conflict: [spent(2), spent(2), unsure, spent(3)],
  cancelled: [notAgain, notAgain, unsure, notAgain],
  expired: [spent(3), spent(3), unsure, spent(3)],
  incompatible_state: [notAgain, notAgain, known, known],
};

interface Case {
  readonly name: string;
  readonly effect: EffectClass;
  readonly failure: FailureClass;
  readonly notApplied: boolean;
  readonly becomes: Becomes;
}

const columns = [
  { effect: 'pure', notApplied: false },
  { effect: 'idempotent', notApplied: false },
  { effect: 'irreversible', notApplied: false },
  { effect: 'irreversible', notApplied: true },
] as const;
const cells: readonly Case[] = FailureClass.options.flatMap((failure) =>
  table[failure].map((cell, i) => {
    const { effect, notApplied } = columns[i] ?? columns[0];
    return { name: `${effect}-${failure}${notApplied ? '-not-applied' : ''}`, effect, failure, notApplied, becomes: cell(failure) };
  }),
);

/** The world's own count, by run. */
const sink = new Map<string, number[]>();
/** A tool for each cell, so that no circuit speaks for another; its probe is not asked before the tests are over. */
const toolOf = ({ name, effect, failure, notApplied }: Case): ToolDefinition =>
  defineTool({
    name,
    version: '1',
    effect,
    input: z.object({}),
    output: z.object({}),
    owner: 'the desk',
    retry: { attemptsMax: 3, initialMs: 1, maxMs: 10, factor: 2 },
    ...(effect === 'pure' ? {} : { probe: { sealing: false, ask: () => stillUnknown('nobody asked'), schedule: { initial: 300_000, max: 300_000 } } }),
    execute: (_, { run, attempt }) => {
      sink.set(run, [...(sink.get(run) ?? []), attempt]);
      throw new Failed({ class: failure, message: said(failure), ...(notApplied ? { notApplied: true } : {}) });
    },
  });

let stack: TestStack;
let worker: ServedWorker | undefined;

async function begin(run: string, tool: string): Promise<void> {
  await stack.intent(run, 'StartRun', { agent: null, input: null });
  await stack.intent(run, 'CallTool', { step: '1', tool: { name: tool, version: '1' }, args: {} });
}

const ledger = (run: string): Seen[] => stack.events(run, topics.effectEvents);
const casesOf = (run: string): Seen[] => stack.events(run, topics.reconciliationEvents).filter(({ envelope }) => envelope.type === 'CaseOpened');

/** Cases are opened in the order of their lanes: when these are there, none of before is missing. */
async function settledLanes(): Promise<void> {
  const last = stack.lanes.map((lane) => stack.runOn(lane, 'last'));
  await Promise.all(last.map((run) => begin(run, 'irreversible-transient')));
  await Promise.all(last.map((run) => stack.event(run, 'CaseOpened', undefined, topics.reconciliationEvents)));
}

beforeAll(async () => {
  stack = await TestStack.start();
  worker = await work(stack.brokers, { tools: cells.map(toolOf) });
  // All at once; each is judged on its own below.
  await Promise.all(cells.map(({ name }) => begin(name, name)));
  await Promise.all(cells.map(({ name }) => eventually(`an end of ${name}`, () => stack.events(name).some(({ envelope }) => envelope.type === 'RunBlocked' || envelope.type === 'EffectSettled'))));
  await settledLanes();
}, STACK_LIMIT_MS);

afterAll(async () => {
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

test('the table has a row for each failure class, and a cell for each effect class', () => {
  expect(Object.keys(table).sort()).toEqual([...FailureClass.options].sort());
  expect(cells).toHaveLength(14 * 4);
});

describe.each(cells)('$failure of a $effect effect (not applied: $notApplied)', ({ name, becomes, failure }) => {
  test('is fired as often as its attempts say, and ends with the reason', () => {
    expect(sink.get(name)).toEqual(Array.from({ length: becomes.fired }, (_, i) => i + 1));
    const told = ledger(name);
    expect(told.filter(({ envelope }) => envelope.type === 'EffectDispatched').map(({ data }) => data['attempt'])).toEqual(sink.get(name));
    const retries = told.filter(({ envelope }) => envelope.type === 'EffectRetryScheduled').map(({ data }) => data['because']);
    const attemptsMax = failure === 'concurrency_conflict' && !name.startsWith('irreversible') ? 2 : 3;
    expect(retries).toEqual(Array.from({ length: becomes.fired - 1 }, (_, i) => `${failure}: attempt ${i + 1} of ${attemptsMax} failed`));
    const [last] = told.slice(-1);
    expect([last?.envelope.type, last?.data]).toEqual([becomes.last, expect.objectContaining(becomes.data)]);
  });

  test(becomes.last === 'EffectOutcomeUnknown' ? 'opens one case, and blocks its run' : 'opens no case', () => {
    if (becomes.last !== 'EffectOutcomeUnknown') return expect(casesOf(name)).toEqual([]);
    const [opened, ...more] = casesOf(name);
    expect(more).toEqual([]);
    expect(opened?.data).toMatchObject({ step: '1', attempt: becomes.fired, cause: becomes.data['cause'], tool: { name, version: '1' }, owner: 'the desk', nextLookAt: expect.any(Number) });
    expect(stack.events(name).map(({ envelope }) => envelope.type)).toEqual(['RunAccepted', 'EffectRequested', 'RunBlocked']);
    expect(stack.events(name).at(-1)?.data).toMatchObject({ step: '1', attempt: becomes.fired, cause: becomes.data['cause'], message: becomes.data['message'], since: expect.any(Number) });
  });
});

test.each(['idempotent-transient', 'irreversible-partial_effect'])('%s: people see the run blocked, with since when, whose it is and when it is looked at next', async (name) => {
  const [opened] = casesOf(name);
  const attempt = String(opened?.data['attempt']);
  expect(await showRun(stack.brokers, name)).toMatchObject({
    phase: 'blocked',
    unknown: [{ step: '1', tool: name, why: opened?.data['message'], case: `${name}/1/${attempt}`, owner: 'the desk', since: iso(opened?.data['since']), nextLook: iso(opened?.data['nextLookAt']) }],
    next: 'none until the outcome of step 1 is settled',
  });
});

const iso = (at: Json | undefined): string => new Date(Number(at)).toISOString();
