import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { Fence, OperationKey, Pool, RunId, Step } from '@holdfast/protocol';
import pg from 'pg';
import { z } from 'zod';
import type { ProbeAnswer } from '../../src/define/probe.js';
import type { ToolContext, ToolDefinition } from '../../src/define/tool.js';
import { Failed, MayHaveApplied, Rejected } from '../../src/errors.js';
import { pgTool, type PgToolSpec } from '../../src/host/pg-tool.js';
import { Gate, until } from './kit.js';

const server = process.env['HOLDFAST_TEST_DATABASE_URL'] ?? '';
const database = `pg_tool_${randomBytes(6).toString('hex')}`;
let admin: pg.Pool;
let pool: pg.Pool;

const urlOf = (name: string): string => {
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.toString();
};

beforeAll(async () => {
  admin = new pg.Pool({ connectionString: urlOf('postgres'), max: 2 });
  await admin.query(`create database ${database}`);
  pool = new pg.Pool({ connectionString: urlOf(database), max: 5 });
});
beforeEach(() => pool.query('drop table if exists accounts, holdfast_operations; create table accounts (id int primary key, balance int not null check (balance >= 0)); insert into accounts values (1, 100)'));
afterAll(async () => {
  await pool.end();
  await admin.query(`drop database ${database} with (force)`);
  await admin.end();
});

const newKey = (): OperationKey => OperationKey.parse(randomBytes(32).toString('hex'));
const contextOf = (operationKey: OperationKey, attempt = 1, timeoutMs = 20_000): ToolContext => ({
  operationKey,
  attempt,
  fence: Fence.parse(1),
  deadline: Date.now() + timeoutMs,
  signal: new AbortController().signal,
  heartbeat: () => undefined,
  run: RunId.parse('run-1'),
  step: Step.parse('1'),
});

const Input = z.object({ amount: z.number() });
type Spec = PgToolSpec<typeof Input, z.ZodUnknown>;
type Execute = Spec['execute'];

/** Takes an amount from the account, and says what is left. */
const withdraw: Execute = async ({ amount }, client) => {
  const { rows } = await client.query<{ balance: number }>('update accounts set balance = balance - $1 where id = 1 returning balance', [amount]);
  return { left: rows[0]?.balance };
};

const toolOf = (execute: Execute = withdraw, connections: Spec['pool'] = pool): ToolDefinition<typeof Input, z.ZodUnknown> =>
  pgTool({ name: 'withdraw', version: '1', input: Input, output: z.unknown(), pool: connections, execute });

const balance = async (): Promise<number | undefined> => (await pool.query<{ balance: number }>('select balance from accounts where id = 1')).rows[0]?.balance;
const probe = async (tool: ToolDefinition<typeof Input, z.ZodUnknown>, context: ToolContext): Promise<ProbeAnswer | undefined> => tool.probe?.ask({ amount: 0 }, { ...context, operationId: undefined, probe: 1 });
const appliedBy = (attempt: number, left = 90): object => ({ status: 'applied', result: { left }, evidence: expect.stringContaining(`applied by attempt ${attempt}, in one transaction`) });
const voided = (attempt: number): object => ({ status: 'not_applied', evidence: expect.stringContaining(`attempt ${attempt} of operation`) });
const call = async (tool: ToolDefinition<typeof Input, z.ZodUnknown>, context: ToolContext, amount = 10): Promise<unknown> => tool.execute({ amount }, context);
const failure = async (ended: Promise<unknown>): Promise<unknown> => {
  const error: unknown = await ended.then(() => undefined, (thrown: unknown) => thrown);
  return error instanceof Failed ? error.failure : error;
};

test('it is irreversible with a sealing probe, so that nothing about it needs an owner', () => {
  expect(toolOf()).toMatchObject({ effect: 'irreversible', probe: { sealing: true } });
  expect(pgTool({ name: 'w', version: '1', effect: 'idempotent', input: Input, output: z.unknown(), pool, execute: withdraw }).effect).toBe('idempotent');
  const timed = pgTool({ name: 'w', version: '1', input: Input, output: z.unknown(), pool, execute: withdraw, probe: { timeout: 700, schedule: { initial: 50 } } });
  expect(timed.contract(Pool.parse('default')).probe).toEqual({ sealing: true, timeoutMs: 700, initialMs: 50 });
});

test('the change and the key are committed together; the same key again gives the recorded result and changes nothing', async () => {
  const tool = toolOf();
  const key = newKey();
  expect(await call(tool, contextOf(key))).toEqual({ left: 90 });
  expect(await call(tool, contextOf(key))).toEqual({ left: 90 });
  expect(await call(tool, contextOf(key, 2))).toEqual({ left: 90 });
  expect(await call(tool, contextOf(newKey()))).toEqual({ left: 80 });
  expect((await pool.query('select operation_key, attempt, state, result from holdfast_operations where operation_key = $1', [key])).rows).toEqual([{ operation_key: key, attempt: 1, state: 'applied', result: '{"left":90}' }]);
});

test('called twenty times at once under one key, it changes once', async () => {
  const tool = toolOf();
  const key = newKey();
  const results = await Promise.all(Array.from({ length: 20 }, () => call(tool, contextOf(key))));
  expect(new Set(results.map((result) => JSON.stringify(result)))).toEqual(new Set(['{"left":90}']));
  expect(await balance()).toBe(90);
});

test('NUL and half a character come back exactly, from the record too', async () => {
  const text = 'W\u0000s \ud83d 😀 \\u0000';
  const tool = toolOf(() => ({ text }));
  const key = newKey();
  expect(await call(tool, contextOf(key))).toEqual({ text });
  expect(await call(tool, contextOf(key))).toEqual({ text });
});

test.each<[string, Execute, unknown]>([
  ['a throw', async (args, client, context) => { await withdraw(args, client, context); throw new Error('bug'); }, { class: 'transient', message: expect.stringMatching(/rolled back: .*bug/), notApplied: true }],
  ['a rejection', async (args, client, context) => { await withdraw(args, client, context); throw new Rejected('no'); }, expect.any(Rejected)],
  ['a failure', async (args, client, context) => { await withdraw(args, client, context); throw new Failed({ class: 'overloaded', message: 'later', retryAfterMs: 5 }); }, { class: 'overloaded', message: 'later', retryAfterMs: 5, notApplied: true }],
  ['a violated constraint', (_, client) => client.query('update accounts set balance = -1'), { class: 'transient', message: expect.stringMatching(/violates check/), notApplied: true }],
  ['an error that the tool swallows', async (args, client, context) => { await withdraw(args, client, context); await client.query('select nonsense').catch(() => undefined); return {}; }, { class: 'transient', message: expect.anything(), notApplied: true }],
  ['a result that is no JSON', async (args, client, context) => { await withdraw(args, client, context); return { n: 1n }; }, { class: 'invalid_output', message: expect.stringMatching(/bigint/), notApplied: true }],
])('%s rolls the change back with its key, and is known not to have been applied', async (_, execute, expected) => {
  const key = newKey();
  expect(await failure(call(toolOf(execute), contextOf(key)))).toEqual(expected);
  expect(await balance()).toBe(100);
  expect(await call(toolOf(), contextOf(key, 2))).toEqual({ left: 90 });
});

test('a result that does not fit its schema rolls the change back', async () => {
  const tool = pgTool({ name: 'w', version: '1', input: Input, output: z.object({ left: z.string() }), pool, execute: withdraw as never });
  expect(await failure(Promise.resolve(tool.execute({ amount: 10 }, contextOf(newKey()))))).toMatchObject({ class: 'invalid_output', notApplied: true });
  expect(await balance()).toBe(100);
});

test('a commit that PostgreSQL refuses was not applied', async () => {
  await pool.query('create table once (n int unique deferrable initially deferred); insert into once values (1)');
  try {
    const tool = toolOf(async (args, client, context) => {
      await client.query('insert into once values (1)');
      return withdraw(args, client, context);
    });
    expect(await failure(call(tool, contextOf(newKey())))).toMatchObject({ notApplied: true, message: expect.stringMatching(/refused the commit/) });
    expect(await balance()).toBe(100);
  } finally {
    await pool.query('drop table once');
  }
});

test('past its time-out an attempt is rolled back, not committed late', async () => {
  const tool = toolOf(async (args, client, context) => {
    const left = await withdraw(args, client, context);
    await client.query('select pg_sleep(0.3)');
    return left;
  });
  expect(await failure(call(tool, contextOf(newKey(), 1, 200)))).toMatchObject({ class: 'transient', notApplied: true });
  expect(await balance()).toBe(100);
});

test('a lost answer to COMMIT may have been applied; the probe knows', async () => {
  const losing = async (): Promise<pg.PoolClient> => {
    const client = await pool.connect();
    return new Proxy(client, {
      get(target, name): unknown {
        const member: unknown = Reflect.get(target, name);
        if (name !== 'query' || typeof member !== 'function') return typeof member === 'function' ? member.bind(target) : member;
        return async (...args: unknown[]) => {
          const answer: unknown = await member.apply(target, args);
          if (args[0] === 'commit') throw Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' });
          return answer;
        };
      },
    });
  };
  const key = newKey();
  await expect(call(toolOf(withdraw, losing), contextOf(key))).rejects.toBeInstanceOf(MayHaveApplied);
  expect(await probe(toolOf(), contextOf(key))).toEqual(appliedBy(1));
});

/* ---- the probe seals ---- */

test('a probe of what never ran answers "not applied" and voids the attempt: it can\'t be applied any more, a later one can', async () => {
  const tool = toolOf();
  const key = newKey();
  expect(await probe(tool, contextOf(key, 2))).toEqual(voided(2));
  for (const attempt of [1, 2]) expect(await failure(call(tool, contextOf(key, attempt)))).toMatchObject({ notApplied: true, message: expect.stringMatching(/voided by a probe/) });
  expect(await balance()).toBe(100);
  expect(await call(tool, contextOf(key, 3))).toEqual({ left: 90 });
  expect(await probe(tool, contextOf(key, 3))).toEqual(appliedBy(3));
  expect(await probe(tool, contextOf(key, 2))).toEqual(appliedBy(3));
});

test('what was voided once is voided further: each probe is final for the attempt that it names', async () => {
  const tool = toolOf();
  const key = newKey();
  await probe(tool, contextOf(key, 1));
  expect(await probe(tool, contextOf(key, 2))).toEqual(voided(2));
  expect(await probe(tool, contextOf(key, 1))).toEqual(voided(1));
  expect(await failure(call(tool, contextOf(key, 2)))).toMatchObject({ notApplied: true });
  expect(await call(tool, contextOf(key, 3))).toEqual({ left: 90 });
});

/** Starts an attempt that stays open inside its transaction until the gate says how it goes on. */
function openAttempt(key: OperationKey, attempt: number): { ended: Promise<unknown>; inside: Promise<void>; go: Gate } {
  const inside = new Gate();
  const go = new Gate();
  const tool = toolOf(async (args, client, context) => {
    const left = await withdraw(args, client, context);
    inside.open();
    await go.passed;
    return left;
  });
  const ended = call(tool, contextOf(key, attempt));
  ended.catch(() => undefined);
  return { ended, inside: inside.passed, go };
}

const waitingForLocks = async (): Promise<number> => (await pool.query(`select 1 from pg_stat_activity where datname = $1 and wait_event_type = 'Lock'`, [database])).rowCount ?? 0;

async function untilBlocked(): Promise<void> {
  while ((await waitingForLocks()) === 0) await new Promise<void>((resolve) => setImmediate(resolve));
}

test.each<[string, boolean, object]>([
  ['commits', true, appliedBy(1)],
  ['rolls back', false, voided(1)],
])('a probe waits for an open transaction, and tells how it ended: it %s', async (_, commits, answer) => {
  const key = newKey();
  const attempt = openAttempt(key, 1);
  await attempt.inside;
  const asked = probe(toolOf(), contextOf(key));
  await untilBlocked();
  if (commits) attempt.go.open();
  else attempt.go.fail(new Error('no'));
  expect(await asked).toEqual(answer);
  await attempt.ended.catch(() => undefined);
  expect(await balance()).toBe(commits ? 90 : 100);
});

test('it waits for a later attempt\'s open transaction too, whose key an earlier probe has voided', async () => {
  const key = newKey();
  await probe(toolOf(), contextOf(key, 1));
  const attempt = openAttempt(key, 2);
  await attempt.inside;
  const asked = probe(toolOf(), contextOf(key, 2));
  await untilBlocked();
  attempt.go.open();
  expect(await asked).toEqual(appliedBy(2));
});

test('a frozen host does not hold the key for ever: PostgreSQL ends its transaction after its time-out', async () => {
  const key = newKey();
  const inside = new Gate();
  const never = new Gate();
  const frozen = toolOf(async (args, client, context) => {
    await withdraw(args, client, context);
    inside.open();
    await never.passed;
    return {};
  });
  const ended = failure(call(frozen, contextOf(key, 1, 200)));
  await inside.passed;
  expect(await probe(toolOf(), contextOf(key, 1))).toEqual(voided(1));
  never.open();
  expect(await ended).toMatchObject({ notApplied: true });
  expect(await balance()).toBe(100);
});

/* ---- connections (C53) ---- */

test('after 500 failures of every kind no connection is held, and the next call is quick', async () => {
  const ways: Execute[] = [
    () => Promise.reject(new Error('bug')),
    (_, client) => client.query('update accounts set balance = -1'),
    (_, client) => client.query('select nonsense'),
    async (_, client) => client.query('select pg_terminate_backend(pg_backend_pid())'),
    () => ({ n: 1n }),
  ];
  let turn = 0;
  const failing = toolOf((args, client, context) => (ways[(turn += 1) % ways.length] ?? withdraw)(args, client, context));
  const ends = await Promise.all(Array.from({ length: 500 }, () => failure(call(failing, contextOf(newKey())))));
  expect(ends.every((end) => typeof end === 'object' && end !== null && 'notApplied' in end && end.notApplied === true)).toBe(true);
  await until(() => pool.totalCount === pool.idleCount && pool.waitingCount === 0, 'every connection is back');
  const begun = Date.now();
  expect(await call(toolOf(), contextOf(newKey()))).toEqual({ left: 90 });
  expect(Date.now() - begun).toBeLessThan(1000);
}, 60_000);

test('waiting for a connection has a limit and a clear error; one that comes later goes back', async () => {
  const single = new pg.Pool({ connectionString: urlOf(database), max: 1 });
  try {
    const taken = await single.connect();
    const tool = toolOf(withdraw, single);
    expect(await failure(call(tool, contextOf(newKey(), 1, 50)))).toEqual({ class: 'overloaded', message: expect.stringMatching(/no connection of the pool came free within \d+ ms/), notApplied: true });
    taken.release();
    expect(await call(tool, contextOf(newKey()))).toEqual({ left: 90 });
    expect(single.totalCount).toBe(1);
  } finally {
    await single.end();
  }
});

test('a database that can\'t be reached applied nothing', async () => {
  const nowhere = new pg.Pool({ connectionString: 'postgres://nobody@127.0.0.1:1/none' });
  expect(await failure(call(toolOf(withdraw, nowhere), contextOf(newKey())))).toMatchObject({ class: 'transient', notApplied: true });
  await nowhere.end();
});

/* ---- the table ---- */

test('many workers that find no table make it once', async () => {
  const tools = Array.from({ length: 5 }, () => toolOf());
  await Promise.all(tools.map((tool) => call(tool, contextOf(newKey()))));
  expect(await balance()).toBe(50);
});

test('a role that may not create tables uses one that is there', async () => {
  const role = `plain_${randomBytes(4).toString('hex')}`;
  await pgTool.migrate(pool);
  await pgTool.migrate(pool);
  await pool.query(`create role ${role} login; revoke create on schema public from public; grant select, insert, update on accounts, holdfast_operations to ${role}`);
  const url = new URL(urlOf(database));
  const asRole = new pg.Pool({ connectionString: url.toString(), max: 1, options: `-c role=${role}` });
  try {
    expect(await call(toolOf(withdraw, asRole), contextOf(newKey()))).toEqual({ left: 90 });
  } finally {
    await asRole.end();
    await pool.query(`drop owned by ${role}; drop role ${role}`);
  }
});
