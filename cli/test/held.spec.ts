import { describe, expect, test } from '@jest/globals';
import { Attempt, digestOf, EffectDispatched, EffectFailed, EffectHeld, EffectPaused, EffectRetryScheduled, EffectUnpaused, operationKey, type Json, type Message } from '@holdfast/protocol';
import { heldSteps } from '../src/held.js';

const at = 1_700_000_000_000;
const iso = (ms: number): string => new Date(at + ms).toISOString();
const step = '2' as never;
const key = operationKey({ scope: 'run', tenant: 'default' as never, run: 'r' as never, step, tool: 'pay', target: null });
const named = { step, key, attempt: Attempt.parse(1) };
const effect = { ...named, tool: { name: 'pay', version: '1' }, effect: 'irreversible' as const, keyScope: 'run' as const, digest: digestOf(1), fence: 1 };
const heldBy = (because: 'circuit_open' | 'no_free_place' | 'paused', message: string): Message => EffectHeld({ ...effect, because, message, since: at, until: at + 60_000 });
const paused = (by: string): Message => EffectPaused({ ...named, by, because: `kate holds ${by} still: audit` });
const letGo = (by: string): Message => EffectUnpaused({ ...named, by, until: at + 90_000 });
const dispatched = EffectDispatched({ ...effect, pool: 'default' as never, because: 'first', notAfter: at, deadline: at, taskSeq: 1, args: 1 } as never);
const again = EffectRetryScheduled({ ...named, retryAt: at + 5000, because: 'b', failure: { class: 'transient', message: 'm' }, evidence: { kind: 'host' } } as never);
const failed = EffectFailed({ ...named, failure: { class: 'expired', message: 'm' }, evidence: { kind: 'ledger' }, because: 'b' } as never);

const shown = (...events: Message[]) => Object.fromEntries(heldSteps(events.map(({ type, data }, i) => ({ type, data: JSON.parse(JSON.stringify(data)) as Json, time: at + i * 1000 }))));

describe('an effect', () => {
  test.each<[string, Message[], object]>([
    ['behind an open circuit is held, and fails in the end', [heldBy('circuit_open', 'the circuit of pay is open')], { 2: { since: iso(0), why: 'the circuit of pay is open', until: iso(60_000) } }],
    ['without a free place is held', [heldBy('no_free_place', 'all 2 places of pay are taken')], { 2: { since: iso(0), why: 'all 2 places of pay are taken', until: iso(60_000) } }],
    ['of a tool that is held still waits as long as that', [heldBy('paused', 'x'), paused('tool pay')], { 2: { since: iso(0), why: 'kate holds tool pay still: audit', until: null } }],
    ['that two brakes hold names both, and the one that is left', [heldBy('paused', 'x'), paused('tool pay'), paused('agent clerk'), letGo('tool pay')], { 2: { since: iso(0), why: 'kate holds agent clerk still: audit', until: null } }],
    ['that was let go is held no more', [heldBy('paused', 'x'), paused('tool pay'), letGo('tool pay')], {}],
    ['that was sent is under way', [heldBy('circuit_open', 'x'), dispatched], {}],
    ['that was sent before the brake was set is under way', [dispatched, paused('tool pay')], {}],
    ['that would be tried again is held by a brake', [dispatched, paused('tool pay'), again], { 2: { since: iso(2000), why: 'kate holds tool pay still: audit', until: null } }],
    ['that waits for its next try is held by nothing', [dispatched, again], {}],
    ['that failed unfired is over', [heldBy('no_free_place', 'x'), failed], {}],
  ])('%s', (_, events, expected) => expect(shown(...events)).toEqual(expected));

  test('of which something unknown is told is as before', () => {
    expect(shown(heldBy('circuit_open', 'open'), { type: 'EffectDreamt', data: { step: '2' } })).toMatchObject({ 2: { why: 'open' } });
  });
});
