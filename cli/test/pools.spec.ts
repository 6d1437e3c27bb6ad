import { describe, expect, it } from '@jest/globals';
import type { AgentContract, Json } from '@holdfast/protocol';
import { unequalPools, workersAlive } from '../src/doctor/pools.js';
import type { LiveEvent } from '../src/live.js';

const NOW = 1_000_000;
const agent = (text: string) => ({ name: text.slice(0, text.indexOf('@')), version: text.slice(text.indexOf('@') + 1) });
const seen = (worker: string, agents: readonly string[], over: Readonly<Record<string, Json>> = {}): LiveEvent => ({
  time: '', topic: 'worker.events', lane: 0, offset: 0, type: 'WorkerSeen', run: worker, tenant: 'default', version: null,
  data: { worker, pool: 'default', state: 'serving', agents: agents.map(agent), tools: [], lanes: [0], generation: 1, runs: 0, at: NOW - 1000, everyMs: 1000, ...over },
});
const declared = (text: string, compatibleWith: string[] = []): AgentContract => ({ ...agent(text), compatibleWith }) as unknown as AgentContract;
const found = (events: readonly LiveEvent[], contracts: readonly AgentContract[] = []) => unequalPools(workersAlive(events, NOW), contracts).map(({ what, says }) => [what, says.slice(says.indexOf('Not served'))]);

describe('workers of one pool', () => {
  it('that serve the same are well', () => {
    expect(found([seen('w1', ['desk@1', 'desk@2']), seen('w2', ['desk@2', 'desk@1'])])).toEqual([]);
  });

  it('that serve different versions, or different agents, leave runs waiting', () => {
    expect(found([seen('w1', ['desk@1']), seen('w2', ['desk@2'])])).toEqual([['pool default', 'Not served: desk@1 by w2; desk@2 by w1']]);
    expect(found([seen('w1', ['desk@1', 'shop@1']), seen('w2', ['desk@1'])])).toEqual([['pool default', 'Not served: shop@1 by w2']]);
  });

  it('may take up older versions that they are compatible with, not newer ones', () => {
    expect(found([seen('w1', ['desk@1']), seen('w2', ['desk@2'])], [declared('desk@1'), declared('desk@2', ['1'])])).toEqual([['pool default', 'Not served: desk@2 by w1']]);
  });

  it('are looked at pool by pool, by their last word, and only while they are there', () => {
    expect(found([seen('w1', ['desk@1']), seen('w2', ['shop@1'], { pool: 'other' })])).toEqual([]);
    expect(found([seen('w1', ['desk@1']), seen('w2', ['desk@2'], { state: 'stopped' })])).toEqual([]);
    expect(found([seen('w1', ['desk@1']), seen('w2', ['desk@2'], { at: NOW - 3001 })])).toEqual([]);
    expect(found([seen('w1', ['desk@1']), seen('w2', ['desk@2']), seen('w2', ['desk@1'])])).toEqual([]);
  });
});
