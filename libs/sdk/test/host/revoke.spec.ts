import { expect, test } from '@jest/globals';
import { z } from 'zod';
import type { CommitEnd } from '@holdfast/runtime';
import { Gate, give, revocation, settle, stage, task, TASKS, until, type Stage } from './kit.js';

/* An attempt that the ledger no longer wants: it never fires and nothing is said of it, unless it has fired. */

async function open(options: Parameters<typeof stage>[0] = {}): Promise<Stage> {
  const made = await stage(options);
  await give(made.member);
  return made;
}

const said = ({ broker }: Stage): number => broker.sent('EffectReported').length;
const free = { effect: 'idempotent', tool: 'put' } as const;

test.each([['irreversible', {}], ['idempotent', free]])('read in one batch with its task, after or before it: %s', async (_, kind) => {
  const made = await open();
  made.broker.append(TASKS, 0, task({ seq: 1, ...kind }), revocation({ seq: 2, of: 1 }), revocation({ seq: 3, of: 4 }), task({ seq: 4, ...kind }), task({ seq: 5, ...kind }));
  await until(() => said(made) === 1, 'the one that is wanted');
  await settle();
  expect([made.tools.fired, said(made)]).toEqual([[5], 1]);
});

test.each([['irreversible', {}], ['idempotent', free]])('read long before its task: %s', async (_, kind) => {
  const made = await open();
  made.broker.append(TASKS, 0, revocation({ seq: 1, of: 2 }));
  await settle();
  made.broker.append(TASKS, 0, task({ seq: 2, ...kind }), task({ seq: 3, ...kind }));
  await until(() => said(made) === 1, 'the one that is wanted');
  await settle();
  expect([made.tools.fired, said(made)]).toEqual([[3], 1]);
});

test.each([['irreversible', {}, { irreversibleConcurrency: 1 }], ['idempotent', free, { concurrency: 1 }]])('while it waits for a place: %s', async (_, kind, options) => {
  const made = await open(options);
  const busy = new Gate<unknown>();
  made.tools.act = ({ n }) => (n === 1 ? busy.passed : {});
  made.broker.append(TASKS, 0, task({ seq: 1, ...kind }), task({ seq: 2, ...kind }), task({ seq: 3, ...kind }));
  await until(() => made.tools.fired.length === 1, 'the first fires');
  made.broker.append(TASKS, 0, revocation({ seq: 4, of: 2 }));
  await settle();
  busy.open({});
  await until(() => said(made) === 2, 'the first and the third');
  await settle();
  expect([made.tools.fired, said(made)]).toEqual([[1, 3], 2]);
});

test.each<[string, object]>([
  ['and looked at last thing before the call', {}],
  ['with arguments that do not fit', { args: { n: 'one' } }],
  ['for a tool that is not here', { tool: 'fax' }],
])('while its commit is in flight, %s', async (_, options) => {
  const made = await open();
  const gates: Gate<CommitEnd>[] = [];
  made.broker.commitEnds = (_commit, apply) => {
    const gate = new Gate<CommitEnd>();
    gates.push(gate);
    return gate.passed.then(() => apply());
  };
  made.broker.append(TASKS, 0, task({ seq: 1, ...options }), task({ seq: 2 }));
  await until(() => gates.length === 1, 'the commit of both');
  made.broker.append(TASKS, 0, revocation({ seq: 3 }));
  await settle();
  gates[0]?.open('accepted');
  await until(() => said(made) > 0, 'the other one');
  await settle();
  expect([made.tools.fired, said(made), made.report(1)]).toEqual([[2], 1, []]);
});

test('while its arguments are looked at', async () => {
  const made = await open();
  const looked = new Gate();
  let begun = 0;
  Object.assign(made.tools.tool('pay'), { input: z.object({ n: z.number() }).refine(async () => { begun += 1; await looked.passed; return true; }) });
  made.broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => begun > 0, 'the arguments are looked at');
  made.broker.append(TASKS, 0, revocation({ seq: 2 }));
  await settle();
  looked.open();
  await settle();
  expect([made.tools.fired, said(made)]).toEqual([[], 0]);
});

test('once it fires it goes on, and its end is reported', async () => {
  const made = await open();
  const end = new Gate<unknown>();
  made.tools.act = () => end.passed;
  made.broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => made.tools.fired.length === 1, 'it fires');
  made.broker.append(TASKS, 0, revocation({ seq: 2 }));
  await settle();
  end.open({});
  await until(() => said(made) === 1, 'its report');
  expect(made.report(1)).toMatchObject([{ status: 'succeeded' }]);
});

test('another attempt of the same effect fires', async () => {
  const made = await open();
  made.broker.append(TASKS, 0, revocation({ seq: 1, of: 2, attempt: 1 }), task({ seq: 2, attempt: 2 }));
  await until(() => made.tools.fired.length === 1, 'attempt 2');
  expect(made.tools.fired).toEqual([2]);
});

test('dropped by a rebalance and revoked before it is polled again, it stays unfired; the lane does not wait for it', async () => {
  const made = await open({ irreversibleConcurrency: 1 });
  const busy = new Gate<unknown>();
  made.tools.act = ({ n }) => (n === 1 ? busy.passed : {});
  made.broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 2 }), revocation({ seq: 3, of: 2 }), task({ seq: 4 }));
  await until(() => made.tools.fired.length === 1, 'the first fires');
  made.broker.rebalance(new Map([[made.member, [0, 1]]]));
  busy.open({});
  await until(() => made.tools.fired.length === 2, 'the fourth, polled again');
  await settle();
  expect(made.tools.fired).toEqual([1, 4]);
  await made.worker.stop(0);
  expect(made.broker.committed.get(0)?.offset).toBe(4);
});

test('a lane of nothing but revocations is saved as read', async () => {
  const made = await open();
  made.broker.append(TASKS, 0, revocation({ seq: 1 }));
  await settle();
  await made.clock.advance(1000);
  expect(made.broker.committed.get(0)?.offset).toBe(1);
});
