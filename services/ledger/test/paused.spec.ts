import { describe, expect, test } from '@jest/globals';
import { ignore, record } from '@holdfast/kernel';
import { EffectPaused, EffectUnpaused } from '@holdfast/protocol';
import fc from 'fast-check';
import type { EffectCommand } from '../src/domain/commands.js';
import { dueAt, isOpen } from '../src/domain/effect.js';
import { dispatched, due, eventsOf, failed, fresh, given, HOLD_MS, now, played, report, request, sending, step, succeeded } from './kit.js';

const word = (type: 'pause' | 'unpause', by = 'run', at = now): EffectCommand => ({ type, step, by, because: 'kate says so', ...sending('pure', at) });
const paused = EffectPaused({ ...fresh, attempt: 1, by: 'run', because: 'kate says so' });
const held = { brake: 'tool:refund', by: 'kate', reason: 'look first' };

describe('an effect that is held still', () => {
  test('of a tool that is held when it is asked for is not sent until the tool is let go', () => {
    const asked = eventsOf(given().when({ ...request('pure'), held }));
    expect(asked).toMatchObject([{ type: 'EffectHeld', data: { because: 'paused', args: { amount: 5 } } }, { type: 'EffectPaused', data: { by: 'tool:refund' } }]);
    const later = now + 30 * HOLD_MS;
    expect(given(...asked).when(due(later, 'pure'))).toEqual(ignore('paused'));
    const free = played(asked, word('unpause', 'tool:refund', later));
    // What it waits for from now on has all its time.
    expect(free.at(-1)).toEqual(EffectUnpaused({ ...fresh, attempt: 1, by: 'tool:refund', until: later + HOLD_MS }));
    expect(given(...free).when(due(later, 'pure'))).toMatchObject({ events: [{ type: 'EffectDispatched', data: { attempt: 1 } }] });
  });

  test('while an attempt is under way: it ends as it ends, and is recorded', () => {
    expect(given(dispatched(1, 'pure')).when(word('pause'))).toEqual(record(paused));
    expect(given(dispatched(1, 'pure'), paused).when(report(1, succeeded, 'pure'))).toMatchObject({ events: [{ type: 'EffectSucceeded' }] });
    const retry = played([dispatched(1, 'pure'), paused], report(1, failed('transient'), 'pure'));
    expect(retry.at(-1)).toMatchObject({ type: 'EffectRetryScheduled' });
    expect(given(...retry).when(due(now + 999_999, 'pure'))).toEqual(ignore('paused'));
    const effect = given(...retry).state().get(step);
    expect(effect && dueAt(effect)).toBeNull();
    expect(given(...played(retry, word('unpause'))).when(due(now + 999_999, 'pure'))).toMatchObject({ events: [{ type: 'EffectDispatched', data: { attempt: 2 } }] });
  });

  test('is looked at for its lost attempts all the same', () => {
    expect(given(dispatched(), paused).when(due(now + 3500))).toMatchObject({ events: [{ type: 'EffectOutcomeUnknown' }] });
  });

  test('by two goes on when both have let go; a word said twice, or about what has ended, is none', () => {
    const both = played([dispatched(1, 'pure')], word('pause'), word('pause', 'tool:refund'), report(1, failed('transient'), 'pure'), word('unpause'));
    expect(given(...both).when(due(now + 999_999, 'pure'))).toEqual(ignore('paused'));
    expect(given(dispatched(), paused).when(word('pause'))).toEqual(ignore('recorded_before'));
    expect(given(dispatched()).when(word('unpause'))).toEqual(ignore('recorded_before'));
    expect(given(...played([dispatched()], report(1, succeeded))).when(word('pause'))).toEqual(ignore('not_under_way'));
  });

  test('fires nothing, whatever else comes', () => {
    const commands = fc.constantFrom<EffectCommand>(word('pause'), word('unpause', 'other'), report(1, failed('transient'), 'pure'), report(2, succeeded, 'pure'), due(now + 999_999, 'pure'), word('pause', 'other'));
    fc.assert(
      fc.property(fc.array(commands), (asked) => {
        const events = played([dispatched(1, 'pure'), paused], ...asked);
        expect(events.filter(({ type }) => type === 'EffectDispatched')).toHaveLength(1);
        expect([...given(...events).state().values()].filter(isOpen).every((effect) => effect.paused.has('run'))).toBe(true);
      }),
    );
  });
});
