import { describe, expect, it } from '@jest/globals';
import type { Json } from '@holdfast/protocol';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { defineTool } from '../src/define/tool.js';
import { replayHistory, type RunHistory } from '../src/replay/index.js';
import type { Run } from '../src/run/index.js';
import { run, StandIn, tenant } from './stand-in.js';

const numbers = { input: z.object({ n: z.number() }), output: z.object({ n: z.number() }) };
let fired = 0;
const execute = ({ n }: { n: number }): { n: number } => {
  fired += 1;
  return { n };
};
const book = defineTool({ name: 'book', version: '1', effect: 'irreversible', owner: 'desk', ...numbers, execute });
const mail = defineTool({ name: 'mail', version: '1', effect: 'idempotent', ...numbers, execute });
const look = defineTool({ name: 'look', version: '1', effect: 'pure', ...numbers, execute });
const tools = [book, mail, look];

let asked = 0;
type Code = (run: Run) => Promise<unknown>;
const agent = (code: Code, version = '1', compatibleWith: string[] = []) => defineAgent({ name: 'desk', version, compatibleWith, input: z.null(), output: z.unknown(), run: code });
const decide = (run: Run): Promise<number> =>
  run.model('decide', () => {
    asked += 1;
    return { output: 7 };
  });
const original: Code = async (run) => {
  const n = await decide(run);
  await run.call(book, { n });
  const [a, b] = await run.all([(branch) => branch.call(look, { n: 1 }), (branch) => branch.call(mail, { n: 2 })]);
  await run.call(mail, { n });
  return [n, a.n, b.n];
};

/** Runs code for real on the stand-in, and gives what would be exported. */
async function recorded(code: Code): Promise<RunHistory> {
  const stand = new StandIn({ tools });
  await stand.execute(agent(code));
  const { steps, observed } = stand.grant(agent(code), null);
  return { format: 'holdfast/run-history', version: 1, run, tenant, agent: { name: 'desk', version: '1' }, input: null, steps: [...steps], observed: [...observed], refused: [], ending: stand.ending };
}

async function divergence(code: Code, version?: string, compatibleWith?: string[]) {
  const history = await recorded(original);
  const before = [fired, asked];
  const replayed = await replayHistory(history, agent(code, version, compatibleWith), { tools, patienceMs: 50 });
  expect([fired, asked]).toEqual(before); // Whatever the code wants, nothing is done.
  return replayed.divergence;
}

describe('a recorded run replayed against', () => {
  it('the same code does what is recorded', async () => {
    const history = await recorded(original);
    const replayed = await replayHistory(history, agent(original), { tools });
    expect(replayed).toEqual({ run, agent: 'desk@1', steps: 5, divergence: null, adopted: 0, next: [] });
  });

  it('code that words a call otherwise goes on with the recorded one', async () => {
    const replayed = await replayHistory(await recorded(original), agent(async (run) => {
      const n = await decide(run);
      await run.call(book, { n: n + 1 });
      const [a, b] = await run.all([(branch) => branch.call(look, { n: 1 }), (branch) => branch.call(mail, { n: 2 })]);
      await run.call(mail, { n });
      return [n, a.n, b.n];
    }), { tools });
    expect(replayed).toMatchObject({ divergence: null, adopted: 1 });
  });

  it('code whose steps are swapped diverges at the first of them', async () => {
    expect(await divergence(async (run) => {
      await run.call(book, { n: 7 });
      return decide(run);
    })).toEqual({ step: '1', recorded: 'model decide', asked: 'call book' });
  });

  it('code that has renamed a step diverges there', async () => {
    expect(await divergence(async (run) => {
      const n = await run.model('judge', () => ({ output: 7 }));
      await run.call(book, { n });
      return n;
    })).toEqual({ step: '1', recorded: 'model decide', asked: 'model judge' });
  });

  it('code with a step more diverges where nothing more is recorded, and that step isn’t begun', async () => {
    expect(await divergence(async (run) => {
      const output = await original(run);
      await run.step('tell everybody', () => {
        asked += 1;
        return null;
      });
      return output;
    })).toEqual({ step: '5', recorded: 'nothing more here', asked: 'step tell everybody' });
  });

  it('code with a step less diverges at the end of the run', async () => {
    expect(await divergence(async (run) => {
      const n = await decide(run);
      await run.call(book, { n });
      const [a, b] = await run.all([(branch) => branch.call(look, { n: 1 }), (branch) => branch.call(mail, { n: 2 })]);
      return [n, a.n, b.n];
    })).toEqual({ step: '4', recorded: 'call mail', asked: 'the end of the run' });
  });

  it('code that runs other branches diverges at the group', async () => {
    expect(await divergence(async (run) => {
      const n = await decide(run);
      await run.call(book, { n });
      const [a] = await run.all([(branch) => branch.call(look, { n: 1 })]);
      return [n, a.n];
    })).toMatchObject({ step: '3', asked: 'a group of 1 branches' });
  });

  it('code that comes to another end says so', async () => {
    expect(await divergence(async (run) => [...(await original(run) as Json[]), 'more'])).toEqual({ step: 'end', recorded: 'completed with {"value":[7,1,2]}', asked: 'completed with {"value":[7,1,2,"more"]}' });
    expect(await divergence(async (run) => {
      await original(run);
      throw new Error('changed its mind');
    })).toMatchObject({ step: 'end', asked: expect.stringContaining('changed its mind') });
  });

  it('code that waits for what is not recorded is found standing still', async () => {
    expect(await divergence(async (run) => {
      await decide(run);
      await new Promise(() => undefined);
    })).toEqual({ step: '2', recorded: 'call book', asked: 'nothing: the code waits for something else, which is not recorded' });
  });

  it('another version needs to say that it can carry on', async () => {
    expect(await divergence(original, '2')).toEqual({ step: 'start', recorded: 'desk@1', asked: 'desk@2, which is not compatibleWith "1"' });
    expect(await divergence(original, '2', ['1'])).toBeNull();
  });
});

describe('the record of a run that is still open', () => {
  it('shows what the code would go on with, and does nothing of it', async () => {
    const whole = await recorded(original);
    const before = [fired, asked];
    const history = { ...whole, steps: whole.steps.slice(0, 2), ending: null };
    expect(await replayHistory(history, agent(original), { tools, patienceMs: 50 })).toMatchObject({ divergence: null, next: ['step 3.1.1: call look', 'step 3.2.1: call mail'] });
    expect([fired, asked]).toEqual(before);
  });

  it('is read to its end on a machine that stands still longer than the patience', async () => {
    const slow: Code = async (run) => {
      for (let step = 0; step < 5; step += 1) {
        await run.step('work', () => 1);
        const until = performance.now() + 60;
        while (performance.now() < until); // Nothing else of this process has a turn.
      }
      return run.call(mail, { n: 1 });
    };
    const whole = await recorded(slow);
    expect(await replayHistory({ ...whole, steps: whole.steps.slice(0, 5), ending: null }, agent(slow), { tools, patienceMs: 20 })).toMatchObject({ divergence: null, next: ['step 6: call mail'] });
  });

  it('ends at a call without an outcome, which is not fired again', async () => {
    const whole = await recorded(original);
    const steps = whole.steps.slice(0, 2).map((step) => (step.kind === 'call' ? (({ outcome: _, ...open }) => open)(step) : step));
    const before = fired;
    expect(await replayHistory({ ...whole, steps, ending: null }, agent(original), { tools, patienceMs: 50 })).toMatchObject({ divergence: null, next: [] });
    expect(fired).toBe(before);
  });

  it('has a refused call refused again', async () => {
    const code: Code = async (run) => run.call(book, { n: 1 }).then(() => 'booked', () => run.call(mail, { n: 2 }).then(() => 'mailed'));
    const stand = new StandIn({ tools, refuse: (intent) => (intent.type === 'CallTool' && intent.data.tool.name === 'book' ? 'over_budget' : undefined) });
    await stand.execute(agent(code));
    const { steps, observed } = stand.grant(agent(code), null);
    const refused = [{ intent: 'CallTool', step: '1', reason: 'over_budget', message: 'no' }];
    const history = { format: 'holdfast/run-history', version: 1, run, tenant, agent: { name: 'desk', version: '1' }, input: null, steps: [...steps], observed: [...observed], refused, ending: stand.ending } as RunHistory;
    expect(steps).toHaveLength(1);
    expect(await replayHistory(history, agent(code), { tools })).toMatchObject({ divergence: null, steps: 1 });
  });
});

/** What a service ends a run with, whatever its code was doing. */
const SERVICE_ENDINGS: readonly (readonly [string, Partial<RunHistory>])[] = [
  ['an operator cancelled', { ending: { status: 'cancelled', reason: 'wrong order', by: 'kate' } }],
  ['expired at its deadline', { ending: { status: 'expired', deadline: 1_700_000_000_000 as never } }],
  ['was ended partially at its deadline', { ending: { status: 'completed_partially', because: 'the day is over' } }],
  ['ran out of its wall time', { ending: { status: 'failed', failure: { class: 'policy_denied', message: 'the run’s budget of 5000 ms is spent' } }, endedBy: 'service' }],
];

describe.each(SERVICE_ENDINGS)('the record of a run that %s', (_, over) => {
  const cut = async (length: number): Promise<RunHistory> => {
    const whole = await recorded(original);
    return { ...whole, steps: whole.steps.slice(0, length), ...over };
  };

  it('is compared up to where it ends, and the code may go on from there', async () => {
    expect(await replayHistory(await cut(2), agent(original), { tools, patienceMs: 50 })).toMatchObject({ divergence: null, next: ['step 3.1.1: call look', 'step 3.2.1: call mail'] });
  });

  it('is compared in the same way where its worker was refused a step in the end', async () => {
    const history = await cut(2);
    for (const reason of ['run_cancelled', 'run_ended']) {
      const refused = [{ intent: 'CallTool', step: '3.1.1' as never, reason, message: 'no' }];
      expect(await replayHistory({ ...history, refused }, agent(original), { tools, patienceMs: 50 })).toMatchObject({ divergence: null, next: ['step 3.1.1: call look', 'step 3.2.1: call mail'] });
    }
  });

  it('is compared with code that ends by itself after what is recorded', async () => {
    expect(await replayHistory(await cut(5), agent(original), { tools, patienceMs: 50 })).toMatchObject({ divergence: null, next: ['completed with {"value":[7,1,2]}'] });
  });

  it('shows a divergence before that', async () => {
    const swapped: Code = async (run) => {
      await decide(run);
      return run.call(mail, { n: 7 });
    };
    expect(await replayHistory(await cut(2), agent(swapped), { tools, patienceMs: 50 })).toMatchObject({ divergence: { step: '2', recorded: 'call book', asked: 'call mail' } });
    const shorter: Code = (run) => decide(run);
    expect(await replayHistory(await cut(2), agent(shorter), { tools, patienceMs: 50 })).toMatchObject({ divergence: { step: '2', recorded: 'call book', asked: 'the end of the run' } });
    const still: Code = async (run) => {
      await decide(run);
      await new Promise(() => undefined);
    };
    expect(await replayHistory(await cut(2), agent(still), { tools, patienceMs: 50 })).toMatchObject({ divergence: { step: '2', recorded: 'call book', asked: expect.stringContaining('nothing') } });
  });
});

describe('the record of a run that a budget of steps has stopped', () => {
  /** As it was recorded, with what would be exported of the refusal. */
  async function stopped(code: Code, ...refuses: string[]): Promise<RunHistory> {
    const refused: RunHistory['refused'] = [];
    const stand = new StandIn({
      tools,
      refusalKeepsOrder: true,
      refuse: (intent) => {
        if (!refuses.includes(intent.type) || (intent.data as { step: string }).step === '1') return undefined;
        refused.push({ intent: intent.type, step: (intent.data as { step: never }).step, reason: 'budget_exhausted', message: 'refused by the test' });
        return 'budget_exhausted';
      },
    });
    await stand.execute(agent(code));
    const { steps, observed } = stand.grant(agent(code), null);
    expect(refused.length).toBeGreaterThan(0);
    expect(stand.ending?.status).toBe('failed');
    return { format: 'holdfast/run-history', version: 1, run, tenant, agent: { name: 'desk', version: '1' }, input: null, steps: [...steps], observed: [...observed], refused, ending: stand.ending, endedBy: 'code' };
  }

  it('at a wait: it is refused again, and the code comes to the same end', async () => {
    const code: Code = async (run) => {
      await run.call(mail, { n: 0 });
      return run.signal('go', z.string());
    };
    const history = await stopped(code, 'StartWait');
    expect(await replayHistory(history, agent(code), { tools, patienceMs: 50 })).toMatchObject({ divergence: null, next: [] });
    const longer: Code = async (run) => {
      await code(run).catch(() => undefined);
      return run.call(mail, { n: 3 });
    };
    expect(await replayHistory(history, agent(longer), { tools, patienceMs: 50 })).toMatchObject({ divergence: { step: '3', recorded: 'nothing more here', asked: 'call mail' } });
  });

  it('at a group that is recorded as one: the comparison ends there, and nothing is fired', async () => {
    const code: Code = async (run) => {
      await run.call(mail, { n: 0 });
      return run.all([(branch) => branch.call(look, { n: 1 }), (branch) => branch.call(mail, { n: 2 })], { checkpoint: 'group' });
    };
    const history = await stopped(code, 'CallGroup');
    const before = fired;
    expect(await replayHistory(history, agent(code), { tools, patienceMs: 50 })).toMatchObject({ divergence: null, next: [] });
    expect(fired).toBe(before);
  });

  it('at recorded work: its value is nowhere, so the comparison ends there and nothing is done', async () => {
    const code: Code = async (run) => {
      await run.call(book, { n: 1 });
      const n = await decide(run);
      return run.call(mail, { n });
    };
    const history = await stopped(code, 'RecordStep', 'CallTool');
    const before = [fired, asked];
    expect(await replayHistory(history, agent(code), { tools, patienceMs: 50 })).toMatchObject({ divergence: null });
    expect([fired, asked]).toEqual(before);
    expect(await replayHistory(history, agent(async (run) => decide(run)), { tools, patienceMs: 50 })).toMatchObject({ divergence: { step: '1', recorded: 'call book', asked: 'model decide' } });
  });
});

describe('a history', () => {
  it('is read from its file', async () => {
    const dir = await mkdtemp(path.join(os.tmpdir(), 'hf-history-'));
    try {
      const file = path.join(dir, 'run.json');
      await writeFile(file, JSON.stringify(await recorded(original)));
      expect(await replayHistory(file, agent(original), { tools })).toMatchObject({ divergence: null, steps: 5 });
      await writeFile(file, '{ "format": "holdfast/run-history", "version": 2 }');
      await expect(replayHistory(file, agent(original))).rejects.toThrow('no run history of version 1');
      await writeFile(file, 'nope');
      await expect(replayHistory(file, agent(original))).rejects.toThrow('holds no JSON');
    } finally {
      await rm(dir, { recursive: true });
    }
    await expect(replayHistory('nowhere.json', agent(original))).rejects.toThrow("nowhere.json can't be read");
  });

  it('of another agent is refused', async () => {
    const other = defineAgent({ name: 'other', version: '1', input: z.null(), output: z.unknown(), run: original });
    await expect(replayHistory(await recorded(original), other)).rejects.toThrow('one of agent desk, not of other');
  });
});
