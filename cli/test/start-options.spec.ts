import { describe, expect, it } from '@jest/globals';
import { StartRun } from '@holdfast/protocol';
import { z } from 'zod';
import { makeProgram } from '../src/index.js';
import { startOptionsOf } from '../src/start-options.js';

const NOW = Date.parse('2026-01-01T00:00:00Z');

describe('a start on the command line', () => {
  it('carries all that a start can carry', () => {
    const { properties = {} } = z.toJSONSchema(StartRun.schema, { unrepresentable: 'any', io: 'input' }) as { properties?: Record<string, unknown> };
    const words = makeProgram().commands.find((each) => each.name() === 'runs')?.commands.find((each) => each.name() === 'start')?.options.map((option) => option.attributeName());
    const named: Record<string, string[]> = { agent: [], parent: [], queueMs: ['queue'], budgets: ['stepsMax', 'attemptsMax', 'tokensMax', 'costMax', 'wallTimeMax'] };
    expect(words).toEqual(expect.arrayContaining(Object.keys(properties).flatMap((member) => named[member] ?? [member])));
  });

  it('says with each option what the message says', () => {
    const words = { pool: 'slow', goal: 'g', success: ['paid', 'told'], principal: 'kim', deadline: '10m', stepsMax: '5', attemptsMax: '6', tokensMax: '700', costMax: '0.5', wallTimeMax: '1h', concurrencyKey: 'chat-7', onConcurrent: 'interrupt', priority: '-3', queue: '0s' };
    expect(startOptionsOf(words, null, NOW)).toEqual({
      ...{ pool: 'slow', goal: 'g', success: ['paid', 'told'], principal: 'kim', deadline: NOW + 600_000 },
      budgets: { stepsMax: 5, attemptsMax: 6, tokensMax: 700, costMax: 0.5, wallTimeMaxMs: 3_600_000 },
      ...{ concurrencyKey: 'chat-7', onConcurrent: 'interrupt', priority: -3, queueMs: 0 },
    });
  });

  it('says nothing where nothing is said', () => {
    expect(startOptionsOf({}, null, NOW)).toEqual({});
  });

  it('takes a deadline as a moment, too', () => {
    expect(startOptionsOf({ deadline: '2026-01-02T01:00:00+01:00' }, null, NOW)).toEqual({ deadline: NOW + 86_400_000 });
  });

  it.each([
    ['expire', { action: 'expire' }],
    ['compensate', { action: 'compensate' }],
    ['{"action":"complete_partially","because":"late"}', { action: 'complete_partially', because: 'late' }],
    ['{"action":"escalate","to":"desk","graceMs":1000}', { action: 'escalate', to: 'desk', grace: 1000 }],
    ['{"action":"remind","everyMs":1000,"times":2}', { action: 'remind', every: 1000, times: 2 }],
  ])('takes for the end of its time %s', (onDeadline, wanted) => {
    expect(startOptionsOf({ onDeadline }, null, NOW)).toEqual({ onDeadline: wanted });
  });
});
