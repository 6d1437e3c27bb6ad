import { Controller, Inject } from '@nestjs/common';
import { DeadLetter, decodeHeaders, topics } from '@holdfast/protocol';
import type { LogRecord, LogWriter } from '@holdfast/runtime';
import { readLane } from '@holdfast/runtime/kafka';
import { z } from 'zod';
import { endpoint, ok, Serves, type Answer, type CallOf } from '../http/endpoint.js';
import { Problem } from '../http/problem.js';
import { Queries, type DeadLetterRow } from './queries.js';
import { AnyJson, Cursor, iso, Limit, page, Time } from './shapes.js';

const Contract = z.object({ kind: z.enum(['tool', 'agent']), name: z.string(), version: z.string(), contract: AnyJson }).meta({ id: 'Contract' });

export const listContracts = endpoint({
  ...{ id: 'listContracts', method: 'get', path: '/v1/contracts', tag: 'contracts', may: 'viewer', summary: 'What workers have declared', description: 'Contracts belong to the deployment, not to a tenant.' },
  query: z.object({ kind: z.enum(['tool', 'agent']).optional(), limit: Limit, cursor: Cursor.optional() }),
  answers: { 200: { description: 'A page of contracts, by kind and name.', schema: page(Contract) } },
});

const Worker = z.object({ worker: z.string(), pool: z.string(), state: z.string(), lanes: z.array(z.number().int()), runs: z.number().int(), at: Time, everyMs: z.number().int(), agents: z.array(AnyJson), tools: z.array(AnyJson) }).meta({ id: 'Worker' });
const WorkerDoc = z.looseObject({ worker: z.string(), pool: z.string(), state: z.string(), lanes: z.array(z.number()), runs: z.number(), at: z.number(), everyMs: z.number(), agents: z.array(z.unknown()), tools: z.array(z.unknown()) });

export const listWorkers = endpoint({
  ...{ id: 'listWorkers', method: 'get', path: '/v1/workers', tag: 'contracts', may: 'operator', summary: 'Workers, as they last showed themselves', description: 'Workers belong to the deployment, not to a tenant.' },
  answers: { 200: { description: 'The latest thousand.', schema: z.object({ items: z.array(Worker) }) } },
});

const DeadLetterOut = z
  .object({ id: z.string(), at: Time, topic: z.string(), partition: z.number().int(), offset: z.number().int(), key: z.string().nullable(), type: z.string().nullable(), reason: z.string(), message: z.string(), excerpt: z.string() })
  .meta({ id: 'DeadLetter' });
const DeadLetterId = z
  .string()
  .meta({ description: 'lane and offset of the dead letter, such as `3-17`' })
  .transform((text, context) => {
    const [, lane, offset] = /^(\d{1,4})-(\d{1,15})$/.exec(text) ?? [];
    if (lane !== undefined && offset !== undefined) return { lane: Number(lane), offset: Number(offset) };
    context.addIssue({ code: 'custom', message: 'is no dead letter’s id, such as 3-17' });
    return z.NEVER;
  });

export const listDeadLetters = endpoint({
  ...{ id: 'listDeadLetters', method: 'get', path: '/v1/dead-letters', tag: 'dead letters', may: 'operator', summary: 'Messages that could not be taken, newest first, with why' },
  query: z.object({ limit: Limit, cursor: Cursor.optional() }),
  answers: { 200: { description: 'A page of dead letters.', schema: page(DeadLetterOut) } },
});

export const redrive = endpoint({
  ...{ id: 'redrive', method: 'post', path: '/v1/dead-letters/{letter}/redrive', tag: 'dead letters', may: 'operator', summary: 'Send the message again, as it was', act: 'dead-letter.redrive', description: 'For intents and results, once what stood in their way is gone. It is decided like any new message. An intent whose run was told that its step is refused is not sent again: it would have two answers.' },
  params: z.object({ letter: DeadLetterId }),
  answers: { 200: { description: 'It is written again.', schema: z.object({ topic: z.string(), key: z.string().nullable() }) } },
  problems: ['refused'],
});

/** Topics whose messages may be sent again: who decides on them knows them by what they are. Commands carry another’s authority. */
const REDRIVEN: readonly string[] = [topics.agentIntents, topics.toolResults];

export const WRITER = Symbol('writer');

@Controller()
export class RecordsController {
  constructor(
    @Inject(Queries) private readonly queries: Queries,
    @Inject(WRITER) private readonly writer: LogWriter,
    @Inject('brokers') private readonly brokers: readonly string[],
  ) {}

  @Serves(listContracts)
  async contracts({ query: { kind, limit, cursor } }: CallOf<typeof listContracts>): Promise<Answer> {
    const { items, next } = await this.queries.contracts(kind, limit, cursor);
    return ok({ items: items.map(({ kind: of, doc }) => ({ kind: of, ...named(doc), contract: doc })), next });
  }

  @Serves(listWorkers)
  async workers(): Promise<Answer> {
    const docs = await this.queries.workers();
    return ok({ items: docs.map((doc) => WorkerDoc.parse(doc)).map(({ worker, pool, state, lanes, runs, at, everyMs, agents, tools }) => ({ worker, pool, state, lanes, runs, at: iso(at), everyMs, agents, tools })) });
  }

  @Serves(listDeadLetters)
  async deadLetters({ query: { limit, cursor }, principal }: CallOf<typeof listDeadLetters>): Promise<Answer> {
    const { items, next } = await this.queries.deadLetters(principal.tenant, limit, cursor);
    return ok({ items: items.map(letterOut), next });
  }

  @Serves(redrive)
  async redrive({ params: { letter }, principal }: CallOf<typeof redrive>): Promise<Answer> {
    const found = await this.queries.deadLetter(principal.tenant, letter.lane, letter.offset);
    if (found === null) throw new Problem('not-found', 'there is no such dead letter');
    const { topic, partition, offset, key } = DeadLetter.schema.parse(JSON.parse(found.doc));
    if (!REDRIVEN.includes(topic)) throw new Problem('refused', `messages of ${topic} are not sent again from here`, { extra: { reason: 'not_possible' } });
    const told = key === null ? null : await this.queries.toldOf(key, `${topic}/${partition}/${offset}`);
    // Its code has gone on by that: taken now, it would have two answers.
    if (told !== null) throw new Problem('refused', `run ${key ?? ''} was told that its intent of step ${told} is refused, and has gone on by that: let its code ask anew`, { extra: { reason: 'answered' } });
    const [record] = (await readLane(this.brokers, topic, partition, offset, offset + 1)).filter((each) => each.offset === offset);
    if (record === undefined) throw new Problem('refused', 'the message is gone from its topic: whoever sent it must send it again', { extra: { reason: 'gone' } });
    if (tenantOf(record) !== principal.tenant) throw new Problem('not-found', 'there is no such dead letter');
    await this.writer.publish([{ topic, lane: partition, key: record.key ?? '', headers: textHeaders(record), value: record.value ?? '' }]);
    return ok({ topic, key: record.key });
  }
}

const tenantOf = (record: LogRecord): string => decodeHeaders({ ce_type: 'any', ...record.headers }, record.key, record.time)?.tenant ?? '';

function textHeaders({ headers }: LogRecord): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).flatMap(([name, value]) => (value === undefined || Array.isArray(value) ? [] : [[name, typeof value === 'string' ? value : new TextDecoder().decode(value as Uint8Array)]])));
}

function named(doc: unknown): { name: string; version: string } {
  return z.object({ name: z.string(), version: z.string() }).parse(doc);
}

function letterOut({ lane, offset, at, doc }: DeadLetterRow): z.input<typeof DeadLetterOut> {
  return { id: `${lane}-${offset}`, at: iso(at), ...DeadLetter.schema.parse(JSON.parse(doc)) };
}
