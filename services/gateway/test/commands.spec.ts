import { describe, expect, it } from '@jest/globals';
import { BrakeReleased, BrakeSet, brakeStream, BrakeTarget, CancelRun, PauseRun, RunPaused, type Json, type Message } from '@holdfast/protocol';
import type { LogWriter } from '@holdfast/runtime';
import type { Answers, Told } from '../src/api/answers.js';
import { BrakesController } from '../src/api/brakes.js';
import { Commands } from '../src/api/commands.js';
import type { EventRow, Queries } from '../src/api/queries.js';
import type { Principal } from '../src/domain/access.js';
import { brakeOf, type BrakeEvent } from '../src/domain/brake-view.js';
import type { Views } from '../src/views/views.js';

const principal: Principal = { id: 'k', name: 'ann', tenant: 'default', roles: ['operator'], tools: null, amountMax: null };
const by = { name: 'ann', roles: ['operator'] };
const id = 'i-7';
const [reason, at] = ['a look', 1_800_000_000_000];
const signal = new AbortController().signal;

/** Commands over events that stand there already, by run; `next` answers what is sent. Records what is sent. */
function commandsOver(events: Readonly<Record<string, readonly Message[]>>, next: Message | null = null) {
  const sent: string[] = [];
  const writer = { publish: (records: readonly { key: string }[]) => Promise.resolve(void sent.push(...records.map(({ key }) => key))) } as unknown as LogWriter;
  const queries = { eventsUnder: (run: string) => Promise.resolve((events[run] ?? []).map(({ type, data }) => ({ type, data: JSON.stringify(data) }) as EventRow)), brakesUnder: () => Promise.resolve((events[brakeStream(0)] ?? []).map((event) => ({ lane: 0, view: brakeOf(event as BrakeEvent) }))) } as unknown as Queries;
  const answers = {
    wait: (_: string, matches: (told: Told) => boolean) => {
      const told = next === null ? null : ({ ...next, data: next.data as Json, tenant: 'default', topic: 't', lane: 0, offset: 0 } as Told);
      return { forget: () => undefined, within: () => Promise.resolve(told !== null && matches(told) ? told : null) };
    },
  } as unknown as Answers;
  return { sent, queries, commands: new Commands(writer, 'gateway', () => at, answers, queries, { passed: () => Promise.resolve() } as unknown as Views) };
}
const ask = { run: 'r', principal, id, waitMs: 0, signal };
const pause = PauseRun({ command: id, by, reason });
const paused = RunPaused({ by, reason, command: id, at });
const reused = (detail: RegExp) => ({ code: 'idempotency-key-reused', detail: expect.stringMatching(detail) });

describe('a command under an id that has an answer', () => {
  it('gets it, and is not sent, where it is the same', async () => {
    const { commands, sent } = commandsOver({ r: [paused] });
    expect(await commands.operate({ ...ask, message: pause })).toEqual(paused);
    expect(sent).toEqual([]);
  });

  it.each([
    [CancelRun({ command: id, by, reason, scope: 'run', manner: 'graceful' }), /\(RunPaused\); choose a new one$/],
    [PauseRun({ command: id, by, reason: 'another' }), /\(RunPaused, with reason "a look"\)/],
  ])('is refused where it is another: %j', async (message, detail) => {
    const { commands, sent } = commandsOver({ r: [paused] });
    await expect(commands.operate({ ...ask, message })).rejects.toMatchObject(reused(detail));
    expect(sent).toEqual([]);
  });

  it('is refused where another’s answer comes while it waits', async () => {
    const { commands } = commandsOver({}, paused);
    await expect(commands.operate({ ...ask, message: CancelRun({ command: id, by, reason, scope: 'run', manner: 'graceful' }) })).rejects.toMatchObject(reused(/RunPaused/));
  });

  it('is its run’s own where only a brake left that id there', async () => {
    const { commands, sent } = commandsOver({ r: [RunPaused({ ...paused.data, brake: 'tenant:default' })] }, paused);
    expect(await commands.operate({ ...ask, message: pause })).toEqual(paused);
    expect(sent).toEqual(['r']);
  });
});

describe('a brake under an id that has an answer on some lanes', () => {
  const target = BrakeTarget.parse({ kind: 'tool', name: 'pay' });
  const set = BrakeSet({ target, by, reason, command: id, at });
  const braking = (next: Message | null) => {
    const { commands, queries, sent } = commandsOver({ [brakeStream(0)]: [set] }, next);
    const call = { query: { waitMs: 0 }, principal, command: id, signal, header: () => undefined, address: 'here' };
    const controller = new BrakesController(queries, commands, 2, 'default');
    const params = { brake: target };
    return { sent, set: (why: string) => controller.set({ ...call, params, body: { reason: why } }), release: () => controller.release({ ...call, params, body: undefined }) };
  };

  it('reaches the others where it is the same', async () => {
    const { set: again, sent } = braking(set);
    expect(await again(reason)).toMatchObject({ status: 200 });
    expect(sent).toEqual([brakeStream(1)]);
  });

  it('reaches none where it is another', async () => {
    const { set: again, release, sent } = braking(BrakeReleased({ target, by, command: id, at }));
    await expect(release()).rejects.toMatchObject(reused(/BrakeSet of tool:pay\)/));
    await expect(again('another')).rejects.toMatchObject(reused(/with reason "a look"/));
    expect(sent).toEqual([]);
  });
});
