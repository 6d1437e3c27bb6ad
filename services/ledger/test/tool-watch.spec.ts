import { beforeEach, describe, expect, test } from '@jest/globals';
import { EffectJoined, type EffectDispatched, type Outcome, type ToolContract } from '@holdfast/protocol';
import type { ContractBook, Turn } from '@holdfast/runtime';
import type { EffectCommand } from '../src/domain/commands.js';
import type { Effect, EffectEvent, RunEffects } from '../src/domain/effect.js';
import { openGate, ToolHealth } from '../src/domain/health.js';
import { healthKey, ToolWatch } from '../src/tool-watch.js';
import { contract, digest, dispatched, due, eventsOf, failed, given, held, hostLost, key, notApplied, now, owner, report, step, succeeded, tool, unknown as inDoubt, verdict } from './kit.js';

/** As much of a turn as the watch asks for: rows that span lanes, and which of them were asked for. */
class Rows {
  readonly rows = new Map<string, string>();
  readonly asked: string[] = [];
  at = now;

  get(): Turn<RunEffects, EffectEvent> {
    const turn: Pick<Turn<RunEffects, EffectEvent>, 'now' | 'random' | 'shared' | 'putShared'> = {
      now: this.at,
      random: () => 0,
      shared: (key) => {
        this.asked.push(key);
        return this.rows.get(key) ?? null;
      },
      putShared: (key, data) => void this.rows.set(key, data),
    };
    return turn as Turn<RunEffects, EffectEvent>;
  }

  health(): ToolHealth | null {
    const data = this.rows.get(healthKey(tool));
    return data === undefined ? null : ToolHealth.parse(JSON.parse(data));
  }
}

const book = (over: Partial<ToolContract>): ContractBook => ({ tool: () => contract('idempotent', over), agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() });
const dispatchedUntil = (dispatched() as ReturnType<typeof EffectDispatched>).data.deadline;
const breaker = { failures: 2, initialMs: 1000 };

let rows: Rows;
let watch: ToolWatch;

beforeEach(() => {
  rows = new Rows();
  watch = new ToolWatch(book({ breaker }));
});

/** A command, decided in a stream of its own and noted as the handlers do. */
function does(command: EffectCommand, before: readonly EffectEvent[] = [dispatched(1, 'idempotent')], by = watch, run = 'r'): void {
  const events = [...before];
  for (const event of eventsOf(given(...events).when(command))) {
    events.push(event);
    by.note(run, event, given(...events).state().get(step) as Effect, rows.get(), command);
  }
}
const ends = (outcome: Outcome, by = watch, run = 'r'): void => does(report(1, outcome, 'idempotent'), undefined, by, run);
const sends = (by = watch, run = 'r'): void => by.note(run, dispatched(1, 'idempotent'), given(dispatched(1, 'idempotent')).state().get(step) as Effect, rows.get());

describe('a target that does well', () => {
  test('costs no lock', () => {
    expect(watch.gate(tool, rows.get())).toEqual(openGate);
    sends();
    ends(succeeded);
    expect(rows.asked).toEqual([]);
    expect(rows.rows.size).toBe(0);
  });
});

describe('a target that fails', () => {
  test('costs no lock any more once it has done well again, also where nothing is sent from here', () => {
    expect(watch.locks(tool)).toEqual([]);
    ends(failed('transient'));
    expect(watch.locks(tool)).toEqual([healthKey(tool)]);
    ends(succeeded);
    ends(succeeded);
    expect(watch.locks(tool)).toEqual([]);
    rows.asked.length = 0;
    ends(succeeded);
    expect(rows.asked).toEqual([]);
    expect(rows.health()).toMatchObject({ failures: 0 });
  });

  test('is watched from the first failure on, and its circuit opens for whoever looks', () => {
    ends(failed('transient'));
    expect(rows.health()).toMatchObject({ failures: 1 });
    ends(failed('transient'));
    expect(watch.gate(tool, rows.get())).toMatchObject({ open: false, because: 'circuit_open', message: expect.stringContaining('refund@1') });
  });

  test('shuts the gate of another instance as soon as that has seen one failure itself', () => {
    const other = new ToolWatch(book({ breaker }));
    ends(failed('transient'));
    ends(failed('transient'));
    expect(other.gate(tool, rows.get())).toEqual(openGate);
    ends(failed('transient'), other);
    expect(other.gate(tool, rows.get())).toMatchObject({ open: false });
  });

  test('gets one trial at a time, which the row counts by run, step and attempt', () => {
    ends(failed('transient'));
    ends(failed('transient'));
    rows.at = now + 500;
    expect(watch.gate(tool, rows.get())).toEqual(openGate);
    sends(watch, 'trial');
    expect(rows.health()?.busy).toEqual({ 'trial/1/1': dispatchedUntil });
    expect(watch.gate(tool, rows.get())).toMatchObject({ open: false, message: expect.stringContaining('a trial is under way') });
    ends(succeeded, watch, 'trial');
    expect(rows.health()).toMatchObject({ failures: 0, openedAt: null, busy: {} });
  });

  test('and is well again: no lock any more, after one last look', () => {
    ends(failed('transient'));
    ends(succeeded);
    expect(watch.gate(tool, rows.get())).toEqual(openGate);
    rows.asked.length = 0;
    expect(watch.gate(tool, rows.get())).toEqual(openGate);
    sends();
    ends(succeeded);
    expect(rows.asked).toEqual([]);
  });

  test('says so also by taking too long, of which a tool that may fire again reports no more than "unknown"', () => {
    ends({ status: 'unknown', cause: 'deadline', message: 'no end within 500 ms' });
    ends({ status: 'unknown', cause: 'may_have_applied', message: 'connection reset' });
    expect(rows.health()).toMatchObject({ failures: 2, openedAt: now });
  });

  test('asks to be left alone: also where nobody knows whether the effect happened', () => {
    does(report(1, { status: 'failed', failure: { class: 'overloaded', message: 'busy', retryAfterMs: 3000 }, evidence: { kind: 'host' } }), [dispatched()]);
    expect(rows.health()).toMatchObject({ quietUntil: now + 3000, limit: 16, failures: 0 });
  });
});

describe('what is no word of the target', () => {
  test.each<[string, () => void]>([
    ['a host that was lost', () => does(hostLost(7, 'idempotent'))],
    ['a task that nobody took', () => does(due(now + 1e6, 'idempotent'))],
    ['a settled case', () => does(verdict(1, notApplied), [dispatched(), ...eventsOf(given(dispatched()).when(report(1, inDoubt)))])],
    ['an answer that could not be used', () => does(report(1, failed('invalid_output')), [dispatched()])],
  ])('%s counts for nothing', (_, act) => {
    act();
    expect(rows.health()).toBeNull();
    expect(watch.gate(tool, rows.get())).toEqual(openGate);
  });

  test('another run’s recorded outcome', () => {
    ends(failed('transient'));
    const before = rows.health();
    const claim = { held: 'by_other' as const, owner, digest, outcome: { result: { value: 1 }, evidence: { kind: 'host' as const } } };
    does(due(now, 'irreversible', claim), [EffectJoined({ step, key, tool, digest, owner })]);
    expect(rows.health()).toEqual(before);
  });
});

describe('a declared limit', () => {
  beforeEach(() => {
    watch = new ToolWatch(book({ concurrencyMax: 2 }));
  });

  test('is asked for each attempt, by all instances', () => {
    const other = new ToolWatch(book({ concurrencyMax: 2 }));
    sends(watch, 'a');
    sends(other, 'b');
    expect(watch.gate(tool, rows.get())).toEqual({ open: false, because: 'no_free_place', message: 'all 2 places of refund@1 are taken', lookAgainAt: now + 200 });
    expect(other.gate(tool, rows.get())).toMatchObject({ open: false });
    ends(succeeded, other, 'a');
    expect(watch.gate(tool, rows.get())).toEqual(openGate);
  });

  test.each<[string, () => void]>([
    ['a lost host', () => does(hostLost(7, 'idempotent'))],
    ['a deadline', () => does(due(now + 1e6, 'idempotent'))],
    ['a failure', () => ends(failed('invalid_request'))],
    ['a rejection', () => ends({ status: 'rejected', reason: 'no', evidence: { kind: 'host' } })],
    ['an unknown outcome', () => does(report(1, inDoubt), [dispatched()])],
  ])('a place is free again after %s', (_, act) => {
    sends();
    expect(Object.keys(rows.health()?.busy ?? {})).toHaveLength(1);
    act();
    expect(rows.health()?.busy).toEqual({});
  });
});

describe('when a held effect is looked at again', () => {
  const shut = { open: false as const, because: 'circuit_open' as const, message: 'm', lookAgainAt: now + 300 };
  const waits = (run: string): void => watch.note(run, held(1, 'idempotent'), given(held(1, 'idempotent')).state().get(step) as Effect, rows.get());

  test('not before its gate may open, and not at once', () => {
    expect(watch.lookAgainAt(tool, shut, rows.get())).toBe(now + 300);
    expect(watch.lookAgainAt(tool, { ...shut, lookAgainAt: now }, rows.get())).toBe(now + 50);
  });

  test('the more wait, the wider they are spread, up to five seconds', () => {
    const last = (): number => watch.lookAgainAt(tool, shut, { ...rows.get(), random: () => 0.999_999 } as Turn<RunEffects, EffectEvent>) - now - 300;
    for (let i = 0; i < 100; i += 1) waits(`r${i}`);
    expect(last()).toBe(499);
    for (let i = 0; i < 5000; i += 1) waits(`r${i}`);
    expect(last()).toBe(4999);
  });
});

