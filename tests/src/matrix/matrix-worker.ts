/** The worker of the crash matrix: a process of its own, whose effects are calls of the sink. */
import { applied, defineAgent, defineTool, Failed, MayHaveApplied, notApplied, serve, type ToolContext, type ToolDefinition } from '@holdfast/sdk';
import { z } from 'zod';

const env = z.object({ HOLDFAST_BROKERS: z.string(), HOLDFAST_SESSION_TIMEOUT_MS: z.coerce.number(), MATRIX_SINK: z.string(), MATRIX_WORKER: z.string() }).parse(process.env);
const me = `${env.MATRIX_WORKER}/${process.pid}`;

async function ask<T>(body: object, answer: z.ZodType<T>): Promise<T> {
  const response = await fetch(env.MATRIX_SINK, { method: 'POST', body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`the sink answers ${response.status}: ${await response.text()}`);
  return answer.parse(await response.json());
}

const args = z.object({
  n: z.number(),
  /** The first attempt is carried out, and its answer is lost. */
  doubt: z.boolean(),
  /** A pause before the call, milliseconds. */
  ms: z.number(),
  /** Waits at this gate of the sink after the call. */
  gate: z.string().nullable(),
  pad: z.string().optional(),
  /** The same doubt, of what answers it. */
  doubtBack: z.boolean().optional(),
});
type Args = z.infer<typeof args>;
const answerArgs = z.object({ of: z.number(), doubt: z.boolean() });
type AnswerArgs = z.infer<typeof answerArgs>;
const Fired = z.union([z.object({ id: z.number() }), z.object({ voided: z.literal(true) })]);

const execute =
  (effect: 'pure' | 'idempotent' | 'irreversible') =>
  async ({ doubt, ms, gate }: Args, { run, step, operationKey, attempt, fence }: ToolContext): Promise<number> => {
    if (ms > 0) {
      await new Promise((resolve) => {
        setTimeout(resolve, ms);
      });
    }
    const fired = await ask({ op: 'fire', run, step, key: operationKey, attempt, fence, effect, worker: me }, Fired);
    if ('voided' in fired) throw new Failed({ class: 'transient', message: 'a probe has voided this attempt', notApplied: true });
    if (gate !== null) await ask({ op: 'gate', name: gate }, z.object({}));
    if (doubt && attempt === 1) throw new MayHaveApplied('the answer was lost');
    return fired.id;
  };

const probe = {
  sealing: true,
  ask: async (_: unknown, { operationKey, attempt }: { operationKey: string; attempt: number }) => {
    const { id } = await ask({ op: 'ask', key: operationKey, attempt }, z.object({ id: z.number().nullable() }));
    return id === null ? notApplied('the sink has voided it') : applied(id, `arrival ${id}`);
  },
  schedule: { initial: 200, max: 1000 },
};

/** Many crashes hit one run here: its attempts must not run out. */
const retry = { attemptsMax: 50, initialMs: 50, maxMs: 500 };
const shared = { version: '1', input: args, output: z.number(), retry };
/** A limit on how many are under way makes a tool the ledger's to grant. */
const granted = { concurrency: 500 };

const tools: readonly ToolDefinition<typeof args, z.ZodNumber>[] = [
  defineTool({ ...shared, name: 'pure-local', effect: 'pure', execute: execute('pure') }),
  defineTool({ ...shared, ...granted, name: 'pure-granted', effect: 'pure', execute: execute('pure') }),
  defineTool({ ...shared, name: 'idempotent-local', effect: 'idempotent', execute: execute('idempotent') }),
  defineTool({ ...shared, ...granted, name: 'idempotent-granted', effect: 'idempotent', execute: execute('idempotent') }),
  // With one attempt only, a doubt is a case.
  defineTool({ ...shared, ...granted, retry: { ...retry, attemptsMax: 1 }, name: 'idempotent-once', effect: 'idempotent', probe, owner: 'tests', execute: execute('idempotent') }),
  defineTool({ ...shared, name: 'irreversible-granted', effect: 'irreversible', probe, owner: 'tests', execute: execute('irreversible') }),
  defineTool({ ...shared, name: 'irreversible-approved', effect: 'irreversible', probe, owner: 'tests', approval: { approvers: ['operator'] }, execute: execute('irreversible') }),
];
const answering =
  (effect: 'idempotent' | 'irreversible') =>
  async ({ of, doubt }: AnswerArgs, { run, step, operationKey, attempt, fence }: ToolContext): Promise<number> => {
    const fired = await ask({ op: 'fire', run, step, key: operationKey, attempt, fence, effect, worker: me, of }, Fired);
    if ('voided' in fired) throw new Failed({ class: 'transient', message: 'a probe has voided this attempt', notApplied: true });
    if (doubt && attempt === 1) throw new MayHaveApplied('the answer was lost');
    return fired.id;
  };

/** Many answers at once are in doubt here, which is no outage: none opens a breaker, behind which the others would wait. */
const answer = { version: '1', input: answerArgs, output: z.number(), retry, probe, owner: 'tests', breaker: { failures: 1000 } };
const answers = [
  defineTool({ ...answer, ...granted, name: 'idempotent-answer', effect: 'idempotent', execute: answering('idempotent') }),
  defineTool({ ...answer, ...granted, retry: { ...retry, attemptsMax: 1 }, name: 'idempotent-answer-once', effect: 'idempotent', execute: answering('idempotent') }),
  defineTool({ ...answer, name: 'irreversible-answer', effect: 'irreversible', execute: answering('irreversible') }),
];
const answeredTools = answers.map((tool) =>
  defineTool({
    ...shared,
    ...granted,
    name: tool.name.replace('answer', 'answered'),
    effect: tool.effect === 'irreversible' ? 'irreversible' : 'idempotent',
    probe,
    owner: 'tests',
    compensate: { tool, args: { of: { from: 'result', at: '' }, doubt: { from: 'args', at: '/doubtBack' } } },
    execute: execute(tool.effect === 'irreversible' ? 'irreversible' : 'idempotent'),
  }),
);
const byName = new Map([...tools, ...answeredTools].map((tool) => [tool.name, tool]));

const cell = defineAgent({
  name: 'cell',
  version: '1',
  input: z.object({ tool: z.string(), steps: z.number(), doubt: z.boolean(), back: z.boolean().default(false), ms: z.number(), gate: z.string().nullable(), pad: z.string().default(''), waits: z.enum(['answered', 'cancelled']).nullable().default(null), nap: z.number().default(0) }),
  output: z.array(z.number()),
  run: async (run, { tool: name, steps, doubt, back, ms, gate, pad, waits, nap }) => {
    const tool = byName.get(name);
    const approved = byName.get('irreversible-approved');
    if (tool === undefined || approved === undefined) throw new Error(`no tool ${name}`);
    const ids: number[] = [];
    if (waits !== null) {
      const plain = { doubt: false, ms, gate: null };
      await run.step('note', () => 'noted');
      ids.push(await run.call(tool, { n: 1, ...plain }));
      await run.signal('go', z.string());
      const approval = await run.approval({ what: 'the second call', tool: approved, args: { n: 2, ...plain } });
      ids.push(await run.call(approved, approval.args, { approval }));
      return ids;
    }
    if (nap > 0) await run.sleep(nap);
    for (let n = 1; n <= steps; n += 1) ids.push(await run.call(tool, { n, doubt: doubt && !back && n === 1, ...(back ? { doubtBack: doubt && n === steps } : {}), ms, gate: n === 1 ? gate : null, ...(pad === '' ? {} : { pad }) }));
    if (back) throw new Error('no way on: all of it goes back');
    return ids;
  },
});

await serve({
  agents: [cell],
  tools: [...tools, ...answers, ...answeredTools],
  brokers: env.HOLDFAST_BROKERS.split(','),
  worker: env.MATRIX_WORKER,
  sessionTimeoutMs: env.HOLDFAST_SESSION_TIMEOUT_MS,
  handleSignals: true,
});
process.stdout.write(`${JSON.stringify({ msg: 'ready' })}\n`);
