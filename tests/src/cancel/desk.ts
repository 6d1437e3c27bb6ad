import type { RunId } from '@holdfast/protocol';
import { defineAgent, defineTool, Failed, MayHaveApplied, type AgentDefinition, type ContractSpec, type ToolContext, type ToolDefinition } from '@holdfast/sdk';
import { z } from 'zod';
import type { Sink } from '../support/sink.js';

const FAR_MS = 60_000;
/** Its one place is taken by this run while the cells are played. */
export const BLOCKER = 'blocker';
export const CHILD_AGENT = 'child';

/** Tools that call the sink and then stand at their run's gate, and an agent for each point of a run's life at which it can be held still. */
export class Desk {
  readonly #gates = new Map<string, { readonly opened: Promise<void>; open(): void }>();

  constructor(private readonly sink: Sink) {}

  open(run: string): void {
    this.#gate(run).open();
  }

  get tools(): ToolDefinition[] {
    const tool = (name: string, effect: 'idempotent' | 'irreversible', then: (context: ToolContext) => Promise<void> | never, contract: ContractSpec = {}): ToolDefinition =>
      defineTool({
        name,
        version: '1',
        effect,
        input: z.object({}),
        output: z.string(),
        owner: 'the desk',
        timeout: FAR_MS,
        queueTimeout: FAR_MS,
        ...contract,
        execute: async (_, context) => {
          await this.#call(context.run, context.operationKey);
          await then(context);
          return `${name} ${context.step}`;
        },
      });
    const later = (notApplied: boolean) => () => {
      throw new Failed({ class: 'transient', message: 'not now', retryAfterMs: FAR_MS, ...(notApplied ? { notApplied } : {}) });
    };
    const atGate = ({ run }: ToolContext): Promise<void> => this.#gate(run).opened;
    return [
      tool('pay', 'irreversible', atGate),
      tool('pay-in-turn', 'irreversible', atGate, { concurrency: 1 }),
      tool('pay-in-doubt', 'irreversible', () => {
        throw new MayHaveApplied('no answer');
      }),
      tool('pay-later', 'irreversible', later(true)),
      tool('put', 'idempotent', atGate),
      tool('put-later', 'idempotent', later(false)),
    ];
  }

  get agents(): AgentDefinition[] {
    const agent = (name: string, act: AgentDefinition['run']): AgentDefinition => defineAgent({ name, version: '1', input: z.object({}), output: z.json(), run: act as never }) as unknown as AgentDefinition;
    /** What must never come to the sink of a cancelled run. */
    const goOn = (run: Parameters<AgentDefinition['run']>[0]): Promise<unknown> => run.call('pay', {});
    const calls = (name: string): AgentDefinition => agent(name, async (run) => {
      await run.call(name, {});
      return goOn(run);
    });
    return [
      ...['pay', 'pay-in-turn', 'pay-in-doubt', 'pay-later', 'put', 'put-later'].map(calls),
      agent('model', async (run) => {
        await run.model('decide', async () => {
          await this.#call(run.id, 'model');
          await this.#gate(run.id).opened;
          return { output: 1 };
        });
        return goOn(run);
      }),
      agent('model-later', async (run) => {
        await run.model('decide', async () => {
          await this.#call(run.id, 'model');
          throw new Failed({ class: 'overloaded', message: 'not now', retryAfterMs: FAR_MS });
        });
        return goOn(run);
      }),
      agent('signal', async (run) => {
        await run.signal('go', z.string());
        return goOn(run);
      }),
      agent('parent', async (run) => {
        await run.child({ name: CHILD_AGENT, version: '1' }, {});
        return goOn(run);
      }),
      agent(CHILD_AGENT, (run) => run.call('pay', {})),
    ];
  }

  async #call(run: RunId, operation: string): Promise<void> {
    const response = await fetch(`${this.sink.url}/${encodeURIComponent(run)}/${operation}`, { method: 'POST' });
    await response.text();
  }

  #gate(run: string): { readonly opened: Promise<void>; open(): void } {
    let gate = this.#gates.get(run);
    if (gate === undefined) this.#gates.set(run, (gate = madeGate()));
    return gate;
  }
}

function madeGate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
