import { describe, expect, it } from '@jest/globals';
import { decodeHeaders, digestOf, encodeHeaders, operationKey, type intentMessages, type Json, type Message, type MessageOf, type RunId, type Step, type Tenant, type WaitEnd } from '@holdfast/protocol';
import type { LogRecord, Outgoing } from '@holdfast/runtime';
import { z } from 'zod';
import { HoldfastClient } from '../src/client/index.js';
import type { ClientLog } from '../src/client/log.js';
import { defineAgent } from '../src/define/agent.js';
import { defineTool } from '../src/define/tool.js';
import { ApprovalInvalid, ApprovalRejected, ApprovalRequired, BudgetExhausted, IntentRefusedError, refusalOf, RunIsCancelled, RunIsPaused, type HoldfastError } from '../src/errors.js';
import { childRunId } from '../src/wait/ask.js';
import { turn } from './stand-in.js';

type Intent = MessageOf<(typeof intentMessages)[number]>;

/** One run's stream in memory, and what an orchestrator makes of each intent. */
class OneRun implements ClientLog {
  readonly intents: { readonly run: string; readonly intent: Intent }[] = [];
  readonly #records: LogRecord[] = [];
  readonly #readers = new Set<(record: LogRecord) => void>();
  answer: (intent: Intent) => readonly Message[] = () => [];

  async publish({ key, headers, value }: Outgoing): Promise<number> {
    await turn();
    const intent = { type: decodeHeaders(headers, key, 0)?.type, data: JSON.parse(value) as unknown } as Intent;
    const offset = this.intents.push({ run: key, intent }) - 1;
    for (const message of this.answer(intent)) this.tell(key, message);
    return offset;
  }

  tell(run: string, message: Message): void {
    const version = this.#records.length + 1;
    const headers = encodeHeaders({ id: `${run}/${version}`, type: message.type, source: 's', subject: run, time: Date.now(), tenant: 'default', lane: 0, seq: version, version });
    const record = { topic: 'run.events', lane: 0, offset: version, key: run, headers, value: JSON.stringify(message.data), time: Date.now() };
    this.#records.push(record);
    for (const reader of this.#readers) reader(record);
  }

  tail({ onRecord }: Parameters<ClientLog['tail']>[0]): Promise<{ caughtUp: Promise<void>; close(): Promise<void> }> {
    for (const record of this.#records) onRecord(record);
    this.#readers.add(onRecord);
    return Promise.resolve({ caughtUp: Promise.resolve(), close: async () => void this.#readers.delete(onRecord) });
  }

  laneOf = (): number => 0;
  close = (): Promise<void> => Promise.resolve();
}

const agent = defineAgent({ name: 'adder', version: '1', input: z.null(), output: z.object({ sum: z.number() }), run: async () => ({ sum: 1 }) });
const refund = defineTool({ name: 'refund', version: '1', effect: 'irreversible', owner: 'desk', approval: { approvers: ['finance'] }, input: z.object({ amount: z.number() }), output: z.object({ paid: z.number() }), execute: ({ amount }) => ({ paid: amount }) });
const accepted = (input: Json, agentOf: object | null): Message => ({ type: 'RunAccepted', data: { tenant: 'default', agent: agentOf, pool: 'default', input, inputDigest: digestOf(input) } });
const finished = (ending: object): Message => ({ type: 'RunFinished', data: { ending, effects: [], steps: { fresh: 0, replayed: 0 } } });

describe('a started run', () => {
  it.each([
    { status: 'cancelled', reason: 'changed their mind', by: 'mia' },
    { status: 'expired', deadline: 1_700_000_000_000 },
  ])('that ended so has this outcome: $status', async (ending) => {
    const log = new OneRun();
    log.answer = ({ type, data }) => (type === 'StartRun' ? [accepted(data.input, data.agent), finished(ending)] : []);
    const client = HoldfastClient.over(log);
    const handle = await client.start(agent, null);
    expect(await handle.outcome()).toEqual(ending);
    expect(await client.outcome(handle.id)).toEqual(ending);
    await client.close();
  });

  it('is given its deadline, what happens then, and its budgets', async () => {
    const log = new OneRun();
    const client = HoldfastClient.over(log);
    const before = Date.now();
    const budgets = { stepsMax: 5, attemptsMax: 9, tokensMax: 1000, costMax: 0.5, wallTimeMaxMs: 60_000 };
    await client.start(agent, null, { deadline: '2 days', onDeadline: { action: 'escalate', to: 'lead', grace: '1 h' }, budgets });
    await client.start(agent, null, { deadline: new Date(1_800_000_000_000) });
    await client.start(agent, null, { deadline: 99 });
    const [words, date, number] = log.intents.map(({ intent }) => intent.data as { deadline: number });
    expect(words).toMatchObject({ onDeadline: { action: 'escalate', to: 'lead', graceMs: 3_600_000 }, budgets });
    expect((words?.deadline ?? 0) - before).toBeGreaterThanOrEqual(2 * 86_400_000);
    expect([date?.deadline, number?.deadline]).toEqual([1_800_000_000_000, 99]);
    await client.close();
  });
});

describe('what is sent to a run', () => {
  it('is keyed by it, and a signal has an id of its own', async () => {
    const log = new OneRun();
    const client = HoldfastClient.over(log);
    await client.signal('r', 'paid', { amount: '5' }, { id: 's-1' });
    await client.signal('r', 'paid', null);
    await client.deliverCallback('r', '3', 'token', { ok: true });
    expect(log.intents).toMatchObject([
      { run: 'r', intent: { type: 'SignalRun', data: { signal: 's-1', name: 'paid', payload: { amount: '5' } } } },
      { run: 'r', intent: { type: 'SignalRun', data: { signal: expect.stringMatching(/^[0-9a-f-]{36}$/), payload: null } } },
      { run: 'r', intent: { type: 'DeliverCallback', data: { step: '3', token: 'token', payload: { ok: true } } } },
    ]);
    await expect(client.signal('r', '', 1)).rejects.toThrow(/the signal: name/);
    await expect(client.signal('~r', 'paid', 1)).rejects.toThrow(/run id/);
    await expect(client.signal('r', 'paid', new Date(0) as never)).rejects.toThrow(/is a Date/);
    await expect(client.deliverCallback('r', 'three', 't', 1)).rejects.toThrow(/the callback: step/);
    expect(log.intents).toHaveLength(3);
    await client.close();
  });
});

describe('a run whose loop its client owns', () => {
  const satisfied = (value: Json): WaitEnd => ({ status: 'satisfied', value: { value }, by: 'mia' });

  /** Takes everything; waits end as told. */
  function orchestrated(ends: Readonly<Record<string, WaitEnd>>): OneRun {
    const log = new OneRun();
    const key = operationKey({ scope: 'run', tenant: 'default' as Tenant, run: 'r' as RunId, step: '1' as Step, tool: 'refund', target: null });
    log.answer = ({ type, data }) => {
      if (type === 'StartRun') return [accepted(data.input, data.agent)];
      if (type === 'StartWait') {
        const end = ends[data.step];
        const started = { type: 'WaitStarted', data: { step: data.step, wait: data.wait, since: 1, onDeadline: { action: 'expire' } } };
        return end === undefined ? [started] : [started, { type: 'WaitEnded', data: { step: data.step, end, at: 2 } }];
      }
      if (type !== 'CallTool') return [];
      const { step, tool, args, approval } = data;
      if (approval === undefined) return [{ type: 'IntentRejected', data: { intent: 'CallTool', step, reason: 'approval_required', message: 'no', token: step } }];
      const call = { step, tool, effect: 'irreversible', keyScope: 'run', args, key, digest: digestOf(args), digestVersion: 1 };
      return [{ type: 'EffectRequested', data: { call, fire: 'granted' } }, { type: 'EffectSettled', data: { step, attempt: 1, outcome: { status: 'succeeded', result: { value: { paid: 5 } }, evidence: { kind: 'receipt' } } } }];
    };
    return log;
  }

  it('waits, asks and calls by an approval; once more, it gets what is recorded', async () => {
    const log = orchestrated({ 1: satisfied(null), 2: satisfied({ amount: '5' }), 3: satisfied(null) });
    const client = HoldfastClient.over(log);
    for (let again = 0; again < 2; again += 1) {
      const run = await client.attach('r');
      await run.sleep('1', '1 day');
      expect(await run.signal('2', 'paid', z.object({ amount: z.string() }))).toEqual({ amount: '5' });
      const approval = await run.approval('3', { what: 'refund', tool: refund, args: { amount: 5 } });
      expect(await run.call('4', refund, approval.args, { approval })).toEqual({ paid: 5 });
      await run.close();
    }
    expect(log.intents.map(({ intent: { type, data } }) => ('step' in data ? `${type} ${data.step}` : type))).toEqual(['StartRun', 'StartWait 1', 'StartWait 2', 'StartWait 3', 'CallTool 4']);
    expect(log.intents.at(-1)).toMatchObject({ intent: { data: { approval: '3', args: { amount: 5 } } } });
    await client.close();
  });

  it('is told by typed errors how a wait ended, what was refused, and that the run is over', async () => {
    const log = orchestrated({ 1: { status: 'rejected', feedback: 'too much', by: 'mia' } });
    const client = HoldfastClient.over(log);
    const run = await client.attach('r');
    await expect(run.approval('1', { what: 'refund', tool: refund, args: { amount: 5 } })).rejects.toMatchObject(new ApprovalRejected('approval refund', '1' as Step, 'too much', 'mia'));
    await expect(run.call('2', refund, { amount: 5 })).rejects.toBeInstanceOf(ApprovalRequired);
    const waiting = run.signal('3', 'paid', z.string());
    waiting.catch(() => undefined);
    for (let i = 0; i < 4; i += 1) await turn();
    log.tell('r', finished({ status: 'cancelled', reason: 'r', by: 'mia' }));
    await expect(waiting).rejects.toMatchObject({ name: 'RunEnded' });
    await client.close();
  });
});

describe('refusals', () => {
  it.each([
    ['budget_exhausted', BudgetExhausted, 'policy_denied'],
    ['run_paused', RunIsPaused, 'policy_denied'],
    ['run_cancelled', RunIsCancelled, 'cancelled'],
    ['approval_required', ApprovalRequired, 'permission_denied'],
    ['approval_invalid', ApprovalInvalid, 'permission_denied'],
    ['unknown_tool', IntentRefusedError, 'invalid_request'],
  ])('say what may be done next: %s', (reason, type, failureClass) => {
    const error: HoldfastError = refusalOf('CallTool', '3' as Step, reason, 'why');
    expect(error).toBeInstanceOf(type);
    expect(error).toBeInstanceOf(IntentRefusedError);
    expect([error.name, error.failureClass, error.message]).toEqual([type.name, failureClass, `CallTool at step 3 was refused (${reason}): why`]);
  });
});

describe('a child’s id', () => {
  it('says where the child stands, and is a digest where that is too long', () => {
    expect(childRunId('r' as RunId, '3.1' as Step)).toBe('r/3.1');
    const long = 'r'.repeat(199) as RunId;
    expect(childRunId(long, '3' as Step)).toMatch(/^[0-9a-f]{64}$/);
    expect(childRunId(long, '3' as Step)).not.toBe(childRunId(long, '4' as Step));
  });
});
