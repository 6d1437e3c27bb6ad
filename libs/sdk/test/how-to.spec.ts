import { readFileSync } from 'node:fs';
import { describe, expect, it } from '@jest/globals';
import type { Json, WaitEnd } from '@holdfast/protocol';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { defineTool } from '../src/define/tool.js';
import type { Run } from '../src/run/index.js';
import { StandIn } from './stand-in.js';

/* The code of docs/how-to/wait-and-ask.md stands here as it stands there: compiled, and run. */

const refund = defineTool({
  name: 'refund', version: '1', effect: 'irreversible', owner: 'desk', approval: { approvers: ['finance'] },
  input: z.object({ order: z.string(), amount: z.number() }), output: z.object({ id: z.string() }), execute: ({ order }) => ({ id: `re_${order}` }),
});
const askScanner = defineTool({
  name: 'ask-scanner', version: '1', effect: 'idempotent',
  input: z.object({ parcel: z.string(), answerTo: z.string() }), output: z.null(), execute: () => null,
});
const auditor = defineAgent({ name: 'auditor', version: '1', input: z.object({ order: z.string() }), output: z.object({ fine: z.boolean() }), run: async () => ({ fine: true }) });

async function refunding(run: Run, input: { order: string; amount: number }): Promise<Json> {
  const approval = await run.approval({
    what: `refund ${input.amount} € for order ${input.order}`,
    tool: refund,
    args: { order: input.order, amount: input.amount },
    approvers: ['finance'],
    fourEyes: true, // Not whoever the run acts for.
    deadline: '2 days',
    onDeadline: { action: 'escalate', to: 'head-of-finance', grace: '1 day' },
    remindEvery: '8 h',
  });
  const { id } = await run.call(refund, approval.args, { approval });
  return id;
}

async function others(run: Run, input: { order: string }): Promise<Json> {
  const { carrier } = await run.signal('shipped', z.object({ carrier: z.string() }), { deadline: '5 days' });

  const callback = run.callback(z.object({ ok: z.boolean() }), { deadline: '1 h' });
  await run.call(askScanner, { parcel: input.order, answerTo: callback.url });
  const { ok } = await callback.answer;

  const report = await run.child(auditor, { order: input.order });
  return [carrier, ok, report.fine];
}

async function first(run: Run): Promise<Json> {
  const how = await run.race([
    async (branch) => (await branch.signal('paid', z.object({ by: z.string() }))).by,
    async (branch) => {
      await branch.sleep('14 days');
      return 'too late';
    },
  ]);
  return how;
}

const twoSteps = (run: Run): Promise<string> => run.step('two steps', () => 'both');

async function changed(run: Run): Promise<Json> {
  const approval = await run.approval({ what: 'refund', tool: refund, args: { order: '7', amount: 1 } });
  const id = run.changed('two-step refund') ? await twoSteps(run) : (await run.call(refund, approval.args, { approval })).id;
  return id;
}

const root = new URL('../../../', import.meta.url);
const plain = (text: string): string => text.split('\n').map((line) => line.trim()).filter((line) => line !== '').join('\n');

describe('the how-to on waiting', () => {
  it('holds no code but what is compiled here', () => {
    const here = plain(readFileSync(new URL(import.meta.url), 'utf8'));
    const blocks = [...readFileSync(new URL('docs/how-to/wait-and-ask.md', root), 'utf8').matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => plain(code ?? ''));
    expect(blocks).toHaveLength(4);
    for (const block of blocks) expect(here).toContain(block);
  });

  it.each<[string, (run: Run) => Promise<Json>, Json]>([
    ['an approval', (run) => refunding(run, { order: '7', amount: 5 }), 're_7'],
    ['signals, callbacks and children', (run) => others(run, { order: '7' }), ['snail', true, true]],
    ['a race', first, 'mia'],
    ['changed code', changed, 'both'],
  ])('does what it says: %s', async (_, code, output) => {
    const values: Record<string, Json> = { shipped: { carrier: 'snail' }, callback: { ok: true }, child: { fine: true }, paid: { by: 'mia' }, approval: null };
    const stand = new StandIn({
      tools: [refund, askScanner],
      callbacks: { secret: 's', url: 'https://gate.example' },
      ends: ({ wait }): WaitEnd | undefined => (wait.kind === 'sleep' ? undefined : { status: 'satisfied', value: { value: values[wait.kind === 'signal' ? wait.name : wait.kind] ?? null }, by: 'test' }),
    });
    await stand.execute(defineAgent({ name: 'desk', version: '1', input: z.null(), output: z.unknown(), run: code }));
    expect(stand.ending).toEqual({ status: 'completed', output: { value: output } });
  });
});
