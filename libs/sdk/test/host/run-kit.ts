import { Attempt, Fence, RunGranted, Step, Tenant, WorkerId, type MessageOf, type Report } from '@holdfast/protocol';
import { z } from 'zod';
import { defineAgent, type AgentDefinition } from '../../src/define/agent.js';
import type { LocalCall, RunPort } from '../../src/host/port.js';
import type { Execute } from '../../src/host/runs.js';
import type { Grant } from '../../src/run/grant.js';
import { fromService, Gate, keyOf, ORCHESTRATOR, RUN, RUNS, type TestBroker, type TestTools } from './kit.js';

export const AGENT = defineAgent({ name: 'clerk', version: '1', input: z.unknown(), output: z.unknown(), run: () => null }) as unknown as AgentDefinition;

/** An executor that does nothing by itself and notes what it is told. */
export class TestRun {
  readonly told: { what: string; about: unknown }[] = [];
  readonly finished = new Gate();
  started = false;
  abandoned: string | undefined;

  constructor(
    readonly grant: Grant,
    readonly port: RunPort,
  ) {}
}

export class TestRuns {
  readonly all: TestRun[] = [];
  readonly execute: Execute = (grant, _agent, port) => {
    const run = new TestRun(grant, port);
    this.all.push(run);
    const tell = (what: string) => (about: unknown) => void run.told.push({ what, about });
    return {
      finished: run.finished.passed,
      start: () => void (run.started = true),
      seen: tell('seen'),
      settled: tell('settled'),
      tryAnswered: tell('tryAnswered'),
      refused: tell('refused'),
      waitEnded: tell('waitEnded'),
      dropped: tell('dropped'),
      abandon: (because) => void (run.abandoned = because),
    };
  };
  get last(): TestRun {
    const run = this.all.at(-1);
    if (run === undefined) throw new Error('no run was granted');
    return run;
  }
}

let seq = 0;

/** Appends a message of the orchestrator to `run.tasks`. */
export function fromOrchestrator(broker: TestBroker, lane: number, message: { readonly type: string; readonly data: unknown }, run: string = RUN): void {
  const prev = seq;
  seq += 1;
  broker.append(RUNS, lane, fromService(ORCHESTRATOR, run, message, { lane, seq, prev }));
}

export const granted = (fence: number, more: Partial<MessageOf<typeof RunGranted>['data']> = {}): MessageOf<typeof RunGranted> =>
  RunGranted({
    worker: WorkerId.parse('worker-a'),
    fence: Fence.parse(fence),
    tenant: Tenant.parse('default'),
    agent: { name: 'clerk', version: '1' },
    input: { order: 7 },
    page: 1,
    pages: 1,
    steps: [],
    observed: [],
    ...more,
  });

export const localCall = (tools: TestTools, tool: string, n: number, fence = 1): LocalCall => ({
  run: RUN,
  tenant: Tenant.parse('default'),
  step: Step.parse(String(n)),
  tool: tools.tool(tool),
  args: { n },
  operationKey: keyOf(n),
  attempt: Attempt.parse(1),
  fence: Fence.parse(fence),
});

export type Answer = Report | 'lease_lost';
