import { describe, expect, test } from '@jest/globals';
import { record } from '@holdfast/kernel';
import { EffectFailed, EffectSucceeded, Step } from '@holdfast/protocol';
import type { EffectCommand } from '../src/domain/commands.js';
import { openGate } from '../src/domain/health.js';
import { applied, callOf, closedGate, digest, dispatched, failure, given, host, key, notApplied, now, played, receipt, report, sending, step, succeeded, tool, verdict } from './kit.js';

const answer = Step.parse('1'); // The kit's step stands for one such as 1~1: the ledger treats it like any other.
const order = (after = 0, over: Partial<Extract<EffectCommand, { type: 'order' }>> = {}): EffectCommand => ({ type: 'order', call: callOf(), fence: 2, after, because: 'first attempt', gate: openGate, ...sending(), ...over });
const failed = (attempt: number) => EffectFailed({ step: answer, key, attempt, failure: failure('permission_denied', true), evidence: host, because: 'it is not tried again' });

describe('a compensation that the ledger is told to carry out', () => {
  test('is committed as granted before anything is sent, and told again it is one', () => {
    expect(given().when(order())).toEqual(record(dispatched()));
    expect(given(dispatched()).when(order())).toEqual({ kind: 'ignore', because: 'duplicate' });
    expect(given(dispatched(), EffectSucceeded({ step, key, attempt: 1, result: { value: null }, evidence: receipt })).when(order(1))).toEqual({ kind: 'ignore', because: 'duplicate' });
  });

  test('waits for its tool like every effect', () => {
    expect(given().when(order(0, { gate: closedGate }))).toMatchObject({ kind: 'record', events: [{ type: 'EffectHeld' }] });
  });

  test('that failed for good is sent again once when that is asked for, under the key that it has', () => {
    const again = given(dispatched(), failed(1)).when(order(1));
    expect(again).toMatchObject({ kind: 'record', events: [{ type: 'EffectDispatched', data: { attempt: 2, key } }] });
    const events = played([dispatched(), failed(1)], order(1));
    expect(given(...events).when(order(1))).toEqual({ kind: 'ignore', because: 'duplicate' });
    expect(given(...events, failed(2)).when(order(1))).toEqual({ kind: 'ignore', because: 'duplicate' });
    // What the attempts before may still say is no end of this one.
    expect(given(...events).when(report(2, succeeded))).toMatchObject({ kind: 'record', events: [{ type: 'EffectSucceeded' }] });
  });

  test('under another key than the recorded one fires nothing', () => {
    expect(given(dispatched(), failed(1)).when(order(1, { call: callOf('irreversible', { key: 'f'.repeat(64) as typeof key }) }))).toEqual({ kind: 'ignore', because: 'duplicate' });
  });
});

describe('an effect of which the ledger has heard nothing', () => {
  const doubt: EffectCommand = { type: 'doubt', call: callOf('idempotent'), because: 'its worker never said', ...sending('idempotent') };

  test('is unknown once somebody doubts it, with all that settling it needs', () => {
    expect(given().when(doubt)).toMatchObject({ kind: 'record', events: [{ type: 'EffectOutcomeUnknown', data: { attempt: 1, cause: 'host_lost', notAfter: now, about: { tool, effect: 'idempotent', args: { amount: 5 } }, local: { digest } } }, { type: 'EffectStopped' }] });
    const events = played([], doubt);
    expect(given(...events).when(verdict(1, applied, 'idempotent'))).toMatchObject({ kind: 'record', events: [{ type: 'EffectSucceeded' }] });
    // Its run is over: what did not happen is not made to happen.
    expect(given(...events).when(verdict(1, notApplied, 'idempotent'))).toMatchObject({ kind: 'record', events: [{ type: 'EffectFailed' }] });
  });

  test('is in no doubt where something is known of it', () => {
    expect(given(dispatched()).when(doubt)).toEqual({ kind: 'ignore', because: 'duplicate' });
  });
});
