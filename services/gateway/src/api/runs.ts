import { Controller, Inject } from '@nestjs/common';
import { Budgets, digestOf, DurationMs, Named, OnDeadline, Pool, RunId, StartRun, topics, type Json } from '@holdfast/protocol';
import { chainHash, systemClock } from '@holdfast/runtime';
import { z } from 'zod';
import { RUN_STATUSES } from '../domain/run-view.js';
import { endpoint, ok, Serves, type Answer, type CallOf } from '../http/endpoint.js';
import { Problem } from '../http/problem.js';
import { Commands } from './commands.js';
import { effectOut, Queries, runOut, runSummary, stepOut, type KnownRun } from './queries.js';
import { AnyJson, Cursor, EffectOut, Limit, Moment, page, Run, RunParams, RunSummary, StepOut, WaitMs } from './shapes.js';
import { refusedStart, startProblem } from './start-refusal.js';

const StartBody = z
  .strictObject({
    agent: Named.nullable().meta({ description: 'null for a run whose loop the client owns' }),
    input: AnyJson.optional().default(null),
    runId: RunId.optional().meta({ description: 'the same id and input again is the same run; made up when absent' }),
    pool: Pool.optional(),
    goal: z.string().max(10_000).optional(),
    success: z.array(z.string().max(2000)).max(50).optional(),
    deadline: Moment.optional(),
    onDeadline: OnDeadline.optional().meta({ description: 'what happens at the deadline; default: the run expires' }),
    budgets: Budgets.optional(),
    concurrencyKey: z.string().min(1).max(200).optional().meta({ description: 'names a conversation, of which one run at most goes on at a time' }),
    onConcurrent: z.enum(['enqueue', 'reject', 'interrupt', 'rollback']).optional().meta({ description: 'where that conversation has an open run: wait for its end, be refused, cancel it, or cancel it and have what it did compensated; default `enqueue`' }),
    priority: z.number().int().min(-100).max(100).optional().meta({ description: 'higher ones are let in earlier; default 0' }),
    queueMs: DurationMs.optional().meta({ description: 'how long it may wait to be let in, milliseconds; 0: not at all' }),
  })
  .meta({ id: 'StartRun' });

const Started = z.object({ run: z.string(), location: z.string() }).meta({ id: 'Started', description: 'the run is asked for, and not decided yet' });

export const startRun = endpoint({
  ...{ id: 'startRun', method: 'post', path: '/v1/runs', tag: 'runs', may: 'agent', summary: 'Start a run', act: 'run.start' },
  query: z.object({ waitMs: WaitMs }),
  body: StartBody,
  answers: {
    200: { description: 'There is such a run already, with this input.', schema: Run },
    201: { description: 'The run is accepted.', schema: Run },
    202: { description: 'Nothing was decided in time; look at `location`.', schema: Started },
  },
  problems: ['refused', 'no-room'],
});

const statuses = z
  .string()
  .max(500)
  .meta({ description: `any of ${RUN_STATUSES.join(', ')}, separated by commas` })
  .transform((text, context) => {
    const parsed = z.array(z.enum(RUN_STATUSES)).safeParse(text.split(',').map((each) => each.trim()));
    if (parsed.success) return parsed.data;
    context.addIssue({ code: 'custom', message: `takes ${RUN_STATUSES.join(', ')}` });
    return z.NEVER;
  });

export const listRuns = endpoint({
  ...{ id: 'listRuns', method: 'get', path: '/v1/runs', tag: 'runs', may: 'viewer', summary: 'List runs, newest first' },
  query: z.object({ status: statuses.optional(), agent: Named.shape.name.optional(), id: z.string().min(1).max(200).refine((text) => text.isWellFormed() && !text.includes('\u0000'), 'holds what no id does').optional().meta({ description: 'how its id begins' }), limit: Limit, cursor: Cursor.optional() }),
  answers: { 200: { description: 'A page of runs.', schema: page(RunSummary) } },
});

export const getRun = endpoint({
  ...{ id: 'getRun', method: 'get', path: '/v1/runs/{run}', tag: 'runs', may: 'viewer', summary: 'Read a run' },
  params: RunParams,
  headers: { 'If-None-Match': 'an ETag: 304 where the run is still that' },
  answers: { 200: { description: 'The run.', schema: Run }, 304: { description: 'It is as you know it.' } },
});

const listing = z.object({ limit: Limit, cursor: Cursor.optional() });

export const listSteps = endpoint({
  ...{ id: 'listSteps', method: 'get', path: '/v1/runs/{run}/steps', tag: 'runs', may: 'viewer', summary: 'A run’s steps, in their order' },
  params: RunParams,
  query: listing,
  answers: { 200: { description: 'A page of steps.', schema: page(StepOut) } },
});

export const listEffects = endpoint({
  ...{ id: 'listEffects', method: 'get', path: '/v1/runs/{run}/effects', tag: 'runs', may: 'viewer', summary: 'A run’s effects with their attempts, as the ledger tells them' },
  params: RunParams,
  query: listing,
  answers: { 200: { description: 'A page of effects.', schema: page(EffectOut) } },
});

const STREAMS = [topics.runEvents, topics.effectEvents, topics.reconciliationEvents, topics.compensationEvents] as const;
const Integrity = z
  .object({ intact: z.boolean(), streams: z.array(z.object({ topic: z.string(), events: z.number().int(), head: z.string().nullable(), problem: z.string().nullable() })) })
  .meta({ id: 'Integrity', description: 'each event’s hash covers the one before it: what is changed, missing or out of order shows. A cut tail shows only against a head that was anchored (`holdfast audit anchor`).' });

export const getIntegrity = endpoint({
  ...{ id: 'getIntegrity', method: 'get', path: '/v1/runs/{run}/integrity', tag: 'runs', may: 'viewer', summary: 'Whether the hash chains of a run’s events hold, counted again from the read models' },
  params: RunParams,
  answers: { 200: { description: 'What was found.', schema: Integrity } },
});

/** Events that are hashed at a time. */
const LINKS = 500;

@Controller()
export class RunsController {
  constructor(
    @Inject(Queries) private readonly queries: Queries,
    @Inject(Commands) private readonly commands: Commands,
  ) {}

  @Serves(startRun)
  async start({ body, query, principal, command, signal }: CallOf<typeof startRun>): Promise<Answer> {
    const { runId, input, deadline, agent, ...rest } = body;
    const id = runId ?? RunId.parse(command);
    const known = await this.queries.run(principal.tenant, id);
    if (known !== null) return ok(runOut(same(known, input as Json, agent)), { location: locationOf(id), etag: etagOf(known) });
    // Ids are one space for all tenants; whose it is, and what it does, is nobody else's business.
    if ((await this.queries.ownerOf(id)) !== null) throw new Problem('refused', `run id ${id} is taken; choose another, or none`, { extra: { reason: 'run_id_taken' } });
    const data = { ...defined(rest), agent, input: input as Json, principal: principal.name, ...(deadline === undefined ? {} : { deadline }) };
    const answer = await this.commands.ask({
      ...{ topic: topics.agentIntents, run: id, principal, id: `start:${id}`, message: StartRun(StartRun.schema.parse(data)), waitMs: query.waitMs, signal },
      answers: ({ type, data: told }) => type === 'RunAccepted' || refusedStart(type, told) !== null,
    });
    const refused = answer === null ? null : refusedStart(answer.type, answer.data);
    if (refused !== null) throw startProblem(refused, systemClock.now());
    const run = answer === null ? null : await this.queries.run(principal.tenant, id);
    const headers = { location: locationOf(id) };
    if (run === null) return { status: 202, body: { run: id, location: locationOf(id) }, headers };
    return { status: 201, body: runOut(same(run, input as Json, agent)), headers: { ...headers, etag: etagOf(run) } };
  }

  @Serves(listRuns)
  async list({ query, principal }: CallOf<typeof listRuns>): Promise<Answer> {
    const { items, next } = await this.queries.runs(principal.tenant, query);
    return ok({ items: items.map(runSummary), next });
  }

  @Serves(getRun)
  async get({ params, principal, header }: CallOf<typeof getRun>): Promise<Answer> {
    const run = await this.queries.runOr404(principal.tenant, params.run);
    const etag = etagOf(run);
    return isKnown(header('if-none-match'), etag) ? { status: 304, headers: { etag } } : ok(runOut(run), { etag });
  }

  @Serves(getIntegrity)
  async integrity({ params, principal, signal }: CallOf<typeof getIntegrity>): Promise<Answer> {
    const { id } = await this.queries.runOr404(principal.tenant, params.run);
    const streams: z.input<typeof Integrity>['streams'] = [];
    for (const topic of STREAMS) streams.push(await this.#chain(id, topic, signal));
    return ok({ intact: streams.every(({ problem }) => problem === null), streams: streams.filter(({ events }) => events > 0) });
  }

  async #chain(run: string, topic: string, signal: AbortSignal): Promise<z.input<typeof Integrity>['streams'][number]> {
    let head = '';
    let version = 0;
    for (let rows = await this.queries.links(run, topic, 0, LINKS); rows.length > 0 && !signal.aborted; rows = await this.queries.links(run, topic, version, LINKS)) {
      for (const { hash, ...link } of rows) {
        const problem = link.version !== version + 1 ? `event ${version + 1} is missing` : chainHash(head, { stream: run, ...link }) === hash ? null : `event ${link.version} (${link.type}) is not what its hash says`;
        if (problem !== null) return { topic, events: version, head: head === '' ? null : head, problem };
        version = link.version;
        head = hash ?? '';
      }
    }
    return { topic, events: version, head: head === '' ? null : head, problem: null };
  }

  @Serves(listSteps)
  async steps({ params, query, principal }: CallOf<typeof listSteps>): Promise<Answer> {
    const run = await this.queries.runOr404(principal.tenant, params.run);
    const { items, next } = await this.queries.steps(run.id, query.limit, query.cursor);
    return ok({ items: items.map((step) => stepOut(step, run.view.fence)), next });
  }

  @Serves(listEffects)
  async effects({ params, query, principal }: CallOf<typeof listEffects>): Promise<Answer> {
    const run = await this.queries.runOr404(principal.tenant, params.run);
    const { items, next } = await this.queries.effects(run.id, query.limit, query.cursor);
    return ok({ items: items.map((effect) => effectOut(run.id, effect)), next });
  }
}

export const locationOf = (run: string): string => `/v1/runs/${encodeURIComponent(run)}`;
/** A run’s page follows from its events alone, so their number names it. */
const etagOf = ({ view }: KnownRun): string => `"${view.version}"`;

function isKnown(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  return header.split(',').some((each) => each.trim() === '*' || each.trim().replace(/^W\//, '') === etag);
}

/** The run, where it is the one that is asked for. The orchestrator records one refusal of another: asked again, it tells nothing. @throws Problem */
function same(run: KnownRun, input: Json, agent: Named | null): KnownRun {
  const { view } = run;
  if (view.inputDigest === digestOf(input) && view.agent?.name === agent?.name && view.agent?.version === agent?.version) return run;
  throw new Problem('refused', 'a run with this id exists with another input or agent; choose another id, or read that run’s outcome', { extra: { reason: 'run_exists_with_other_input' } });
}

/** Leaves out members without a value. */
function defined<T extends object>(members: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
