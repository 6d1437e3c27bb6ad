import { describe, expect, test } from '@jest/globals';
import { existsSync } from 'node:fs';
import { AgentContract, ToolContract } from '@holdfast/protocol';
import { agentLines, problems, toolLines } from '../src/contracts.js';

const refund = ToolContract.parse({
  name: 'refund', version: '1', pool: 'default', effect: 'irreversible', keyScope: 'run', input: {}, output: {},
  retry: { attemptsMax: 5, initialMs: 200, maxMs: 30_000, factor: 2 }, timeoutMs: 1000, queueMs: 1000, settleDelayMs: null, probe: { sealing: true }, owner: 'payments',
});
const agent = AgentContract.parse({ name: 'desk', version: '2', pool: 'default', input: {}, output: {}, compatibleWith: ['1'] });
const says = (tool: ToolContract, line: string): unknown => toolLines(tool).find((each) => each.line === line);

describe('a tool’s recovery contract', () => {
  test('has every line, each from a declaration, a default or a test that is there', () => {
    expect(toolLines(refund).map(({ line }) => line)).toEqual([
      'effect class', 'key and scope', 'material arguments', 'timeout', 'retries', 'unknown handling', 'owner of unknowns', 'probe', 'fallback', 'compensation and its authority', 'cancellation', 'approval', 'evidence', 'limits',
    ]);
    for (const { from } of [...toolLines(refund), ...agentLines(agent)]) {
      if (from !== 'declared' && from !== 'default' && from !== 'not declared') expect([from, existsSync(new URL(`../../${from}`, import.meta.url))]).toEqual([from, true]);
    }
    expect(says(refund, 'retries')).toMatchObject({ says: expect.stringContaining('(the default)') });
  });

  test('fails the check where an irreversible tool lacks a line, and only there', () => {
    expect(problems(refund)).toEqual([]);
    expect(problems({ ...refund, owner: null })).toEqual([expect.stringContaining('lacks the line "owner of unknowns"')]);
    expect(problems({ ...refund, owner: null, effect: 'idempotent' })).toEqual([]);
    expect(problems({ ...refund, probe: { sealing: false } })).toEqual([expect.stringContaining('never prove'), expect.stringContaining('lacks the line "probe"')]);
    expect(problems({ ...refund, probe: null })).toEqual([]);
    expect(problems({ ...refund, probe: null, owner: null }).length).toBeGreaterThan(2);
  });

  test('an agent’s says which versions it carries on', () => {
    expect(agentLines(agent)[0]).toEqual({ line: 'versions', says: 'its own, and 1', from: 'declared', missing: false });
    expect(agentLines({ ...agent, compatibleWith: [] })[0]?.says).toBe('its own alone');
  });
});
