import { caseMessages, contractKey, contractMessages, DeadLetter, decodeHeaders, decoder, effectMessages, parseJson, planMessages, runMessages, topics, WorkerSeen, type Envelope, type Json, type Step } from '@holdfast/protocol';
import { crashPoint, inHand, type LogRecord } from '@holdfast/runtime';
import type { DataSource, EntityManager } from 'typeorm';
import { brakeOf, type BrakeEvent } from '../domain/brake-view.js';
import { evolveCase, type CaseView } from '../domain/case-view.js';
import { evolveEffect, type EffectView } from '../domain/effect-view.js';
import { countsAs } from '../domain/figures.js';
import { placeOf } from '../domain/position.js';
import { awaiting, evolvePlan, latestPlan, noPlan, type PlanView } from '../domain/plan-view.js';
import { evolveRun, statusOf, type RunView } from '../domain/run-view.js';
import { approvalStatus, evolveSteps, placeOfStep, stepsOf, type StepView, type WaitView } from '../domain/step-view.js';
import { rowsOf, storable } from '../store/database.js';
import { movePosition } from '../store/positions.js';
import type { LaneSink } from './lane-reader.js';
import { schemaOf } from './schema.js';
import { DocTable } from './doc-table.js';

/** Topics that the read models are made from. */
export const VIEW_TOPICS = [topics.runEvents, topics.effectEvents, topics.reconciliationEvents, topics.compensationEvents, topics.contracts, topics.deadLetters, topics.workerEvents];

/** Types are read leniently: one that this version doesn't know is kept and shown, and changes no view. */
const decodeRun = decoder(runMessages);
const decodeEffect = decoder(effectMessages);
const decodeCase = decoder(caseMessages);
const decodePlan = decoder(planMessages);
const decodeContract = decoder(contractMessages);
const decodeOther = decoder([DeadLetter, WorkerSeen]);

interface Told {
  readonly record: LogRecord;
  readonly envelope: Envelope;
  readonly data: Json;
}

/** Folds topics into one generation's tables. Each table is fed by one topic, so lanes need no order between topics. */
export class Projector implements LaneSink {
  readonly #schema: string;

  constructor(
    private readonly database: DataSource,
    generation: number,
    private readonly onMoved: (places: readonly string[]) => void,
  ) {
    this.#schema = schemaOf(generation);
  }

  async positions(lanes: readonly number[]): Promise<Map<string, number>> {
    const rows = await rowsOf<{ topic: string; lane: number; next: number }>(this.database, `select topic, lane, next from ${this.#schema}.position where lane = any($1)`, [lanes]);
    return new Map(rows.map(({ topic, lane, next }) => [placeOf(topic, lane), next]));
  }

  async take(records: readonly LogRecord[], from: number): Promise<boolean> {
    const [first] = records;
    const last = records.at(-1);
    if (first === undefined || last === undefined) return true;
    const about = (): readonly string[] => records.flatMap(told).flatMap(({ envelope, record }) => inHand(envelope.subject, envelope.type, record.value ?? 'null'));
    const taken = await this.database.transaction(async (tx) => {
      if (!(await movePosition(tx, `${this.#schema}.position`, first.topic, first.lane, from, last.offset + 1))) return false;
      await this.#project(tx, first.topic, records.flatMap(told));
      crashPoint('gateway.before-commit', about);
      return true;
    });
    if (taken) crashPoint('gateway.after-commit', about);
    if (taken) this.onMoved([placeOf(first.topic, first.lane)]);
    return taken;
  }

  async pass({ topic, lane, offset }: LogRecord, from: number): Promise<boolean> {
    const passed = await this.database.transaction((tx) => movePosition(tx, `${this.#schema}.position`, topic, lane, from, offset + 1));
    if (passed) this.onMoved([placeOf(topic, lane)]);
    return passed;
  }

  async #project(tx: EntityManager, topic: string, all: readonly Told[]): Promise<void> {
    switch (topic) {
      case topics.contracts:
        return this.#contracts(tx, all);
      case topics.deadLetters:
        return this.#deadLetters(tx, all);
      case topics.workerEvents:
        return this.#workers(tx, all);
      default:
        return this.#streams(tx, topic, all);
    }
  }

  /** Events of services' streams: each counts once, however often it was published. */
  async #streams(tx: EntityManager, topic: string, all: readonly Told[]): Promise<void> {
    if (topic === topics.runEvents) await this.#brakes(tx, all.filter(({ envelope }) => envelope.subject.startsWith('~brakes/')));
    const mine = all.filter(({ envelope }) => envelope.version !== undefined && !envelope.subject.startsWith('~'));
    if (mine.length === 0) return;
    const subjects = [...new Set(mine.map(({ envelope }) => envelope.subject))];
    const known = await rowsOf<{ subject: string; version: number }>(tx, `select subject, version from ${this.#schema}.stream where topic = $1 and subject = any($2)`, [topic, subjects]);
    const versions = new Map(known.map(({ subject, version }) => [subject, version]));
    const fresh = mine.filter(({ envelope }) => {
      if ((envelope.version ?? 0) <= (versions.get(envelope.subject) ?? 0)) return false;
      versions.set(envelope.subject, envelope.version ?? 0);
      return true;
    });
    if (fresh.length === 0) return;
    await tx.query(
      `insert into ${this.#schema}.stream (topic, subject, version) select $1, * from unnest($2::text[], $3::bigint[]) on conflict (topic, subject) do update set version = excluded.version`,
      [topic, subjects, subjects.map((subject) => versions.get(subject) ?? 0)],
    );
    await tx.query(
      `insert into ${this.#schema}.event (topic, lane, "offset", subject, tenant, type, version, time, hash, command, counts_as, data)
       select $1, $2, * from unnest($3::bigint[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[])`,
      [
        topic,
        fresh[0]?.record.lane ?? 0,
        fresh.map(({ record }) => record.offset),
        fresh.map(({ envelope }) => envelope.subject),
        fresh.map(({ envelope }) => envelope.tenant),
        fresh.map(({ envelope }) => envelope.type),
        fresh.map(({ envelope }) => envelope.version ?? 0),
        fresh.map(({ envelope }) => envelope.time),
        fresh.map(({ envelope }) => envelope.hash ?? null),
        fresh.map(({ data }) => commandIn(data)),
        fresh.map(({ envelope, data }) => countsAs(envelope.type, data)),
        fresh.map(({ record }) => record.value ?? 'null'),
      ],
    );
    switch (topic) {
      case topics.runEvents:
        return this.#runs(tx, fresh);
      case topics.effectEvents:
        return this.#effects(tx, fresh);
      case topics.compensationEvents:
        return this.#plans(tx, fresh);
      case topics.reconciliationEvents:
        return this.#cases(tx, fresh);
      default:
    }
  }

  /** Lanes' own streams: the latest word on each brake, however often it was published. */
  async #brakes(tx: EntityManager, all: readonly Told[]): Promise<void> {
    for (const { record, envelope, data } of all) {
      const decoded = decodeRun(envelope.type, data);
      if (!decoded.ok || (decoded.message.type !== 'BrakeSet' && decoded.message.type !== 'BrakeReleased')) continue;
      const view = brakeOf(decoded.message as BrakeEvent);
      await tx.query(
        `insert into ${this.#schema}.brake as b (lane, name, version, is_set, doc) values ($1, $2, $3, $4, $5)
         on conflict (lane, name) do update set version = excluded.version, is_set = excluded.is_set, doc = excluded.doc where b.version < excluded.version`,
        [record.lane, view.name, envelope.version ?? 0, view.isSet, JSON.stringify(view)],
      );
    }
  }

  async #plans(tx: EntityManager, all: readonly Told[]): Promise<void> {
    const tenants = new Map(all.map(({ envelope }) => [envelope.subject, envelope.tenant]));
    const plans = await DocTable.load<PlanView>(tx, `${this.#schema}.plan`, ['run'], all.map(({ envelope }) => [envelope.subject]));
    for (const { envelope, data } of all) {
      const decoded = decodePlan(envelope.type, data);
      if (decoded.ok) plans.set([envelope.subject], evolvePlan(plans.get([envelope.subject]) ?? noPlan, decoded.message, envelope.time));
    }
    await plans.save({
      tenant: ['text', (_, [run = '']) => tenants.get(run) ?? ''],
      status: ['text', (doc) => latestPlan(doc)?.status ?? null],
      awaiting: ['int', awaiting],
      since: ['bigint', (doc) => latestPlan(doc)?.openedAt ?? null],
    });
  }

  async #runs(tx: EntityManager, all: readonly Told[]): Promise<void> {
    const events = all.flatMap(({ envelope, data }) => {
      const decoded = decodeRun(envelope.type, data);
      return decoded.ok ? [{ envelope, event: decoded.message }] : [];
    });
    const runs = await DocTable.load<RunView>(tx, `${this.#schema}.run`, ['id'], events.map(({ envelope }) => [envelope.subject]));
    const steps = await DocTable.load<StepView>(tx, `${this.#schema}.step`, ['run', 'step'], events.flatMap(({ envelope, event }) => stepsOf(event).map((step) => [envelope.subject, step])));
    for (const { envelope, event } of events) {
      const run = envelope.subject;
      const after = evolveRun(runs.get([run]) ?? null, event, { at: envelope.time, version: envelope.version ?? 0, hash: envelope.hash ?? null, trace: envelope.traceparent?.split('-')[1] ?? null });
      if (after === null) continue;
      runs.set([run], after);
      const before = new Map(stepsOf(event).flatMap((step): [Step, StepView][] => {
        const found = steps.get([run, step]);
        return found === undefined ? [] : [[step, found]];
      }));
      for (const step of evolveSteps(before, event, envelope.time)) steps.set([run, step.step], step);
    }
    await runs.save({ tenant: ['text', ({ tenant }) => tenant], status: ['text', statusOf], over: ['boolean', ({ endedAt }) => endedAt !== null], agent: ['text', ({ agent }) => agent?.name ?? null], accepted_at: ['bigint', ({ acceptedAt }) => acceptedAt] });
    await steps.save({ place: ['text', ({ step }) => placeOfStep(step)] });
    const approvals = await DocTable.load<WaitView>(tx, `${this.#schema}.approval`, ['run', 'step'], []);
    for (const { key, doc } of steps.changed()) if (doc.kind === 'wait' && doc.wait.kind === 'approval') approvals.set(key, doc);
    await approvals.save({
      tenant: ['text', (_, [run = '']) => runs.get([run])?.tenant ?? ''],
      since: ['bigint', ({ askedAt }) => askedAt],
      status: ['text', (doc) => approvalStatus(doc, false)],
    });
  }

  async #effects(tx: EntityManager, all: readonly Told[]): Promise<void> {
    const tenants = new Map(all.map(({ envelope }) => [envelope.subject, envelope.tenant]));
    const events = all.flatMap(({ envelope, data }) => {
      const decoded = decodeEffect(envelope.type, data);
      return decoded.ok ? [{ envelope, event: decoded.message }] : [];
    });
    const effects = await DocTable.load<EffectView>(tx, `${this.#schema}.effect`, ['run', 'step'], events.map(({ envelope, event }) => [envelope.subject, event.data.step]));
    for (const { envelope, event } of events) effects.set([envelope.subject, event.data.step], evolveEffect(effects.get([envelope.subject, event.data.step]) ?? null, event, envelope.time));
    await effects.save({
      place: ['text', ({ step }) => placeOfStep(step)],
      tenant: ['text', (_, [run = '']) => tenants.get(run) ?? null],
      tool: ['text', ({ tool }) => tool?.name ?? null],
      status: ['text', ({ status }) => status],
      since: ['bigint', ({ since }) => since],
    });
  }

  async #cases(tx: EntityManager, all: readonly Told[]): Promise<void> {
    const tenants = new Map(all.map(({ envelope }) => [envelope.subject, envelope.tenant]));
    const events = all.flatMap(({ envelope, data }) => {
      const decoded = decodeCase(envelope.type, data);
      return decoded.ok ? [{ envelope, event: decoded.message }] : [];
    });
    const cases = await DocTable.load<CaseView>(tx, `${this.#schema}.matter`, ['run', 'step'], events.map(({ envelope, event }) => [envelope.subject, event.data.step]));
    for (const { envelope, event } of events) {
      const after = evolveCase(cases.get([envelope.subject, event.data.step]) ?? null, event, envelope.time);
      if (after !== null) cases.set([envelope.subject, event.data.step], after);
    }
    await cases.save({
      attempt: ['int', ({ attempt }) => attempt],
      tenant: ['text', (_, [run = '']) => tenants.get(run) ?? null],
      status: ['text', ({ status }) => status],
      owner: ['text', ({ owner }) => owner],
      tool: ['text', ({ tool }) => tool.name],
      since: ['bigint', ({ since }) => since],
    });
  }

  async #contracts(tx: EntityManager, all: readonly Told[]): Promise<void> {
    for (const { envelope, data } of all) {
      const decoded = decodeContract(envelope.type, data);
      if (!decoded.ok) continue;
      const kind = decoded.message.type === 'ToolDeclared' ? 'tool' : 'agent';
      const { name, version } = decoded.message.data;
      await tx.query(
        `insert into ${this.#schema}.contract (key, kind, name, version, doc) values ($1, $2, $3, $4, $5) on conflict (key) do update set doc = excluded.doc`,
        [contractKey(kind, { name, version }), kind, name, version, JSON.stringify(decoded.message.data)],
      );
    }
  }

  async #deadLetters(tx: EntityManager, all: readonly Told[]): Promise<void> {
    for (const { record, envelope, data } of all) {
      const decoded = decodeOther(envelope.type, data);
      if (!decoded.ok || decoded.message.type !== 'DeadLetter') continue;
      const { topic, partition, offset } = decoded.message.data;
      // One message is one dead letter, however often a service that reads again says so.
      await tx.query(`insert into ${this.#schema}.dead_letter (lane, "offset", tenant, at, origin, doc) values ($1, $2, $3, $4, $5, $6) on conflict do nothing`, [
        record.lane,
        record.offset,
        envelope.tenant,
        envelope.time,
        storable(`${topic}/${partition}/${offset}`),
        JSON.stringify(decoded.message.data),
      ]);
    }
  }

  async #workers(tx: EntityManager, all: readonly Told[]): Promise<void> {
    for (const { envelope, data } of all) {
      const decoded = decodeOther(envelope.type, data);
      if (!decoded.ok || decoded.message.type !== 'WorkerSeen') continue;
      const { worker, at } = decoded.message.data;
      await tx.query(`insert into ${this.#schema}.worker as w (id, at, doc) values ($1, $2, $3) on conflict (id) do update set at = excluded.at, doc = excluded.doc where w.at <= excluded.at`, [worker, at, JSON.stringify(decoded.message.data)]);
    }
  }
}

function told(record: LogRecord): Told[] {
  const envelope = decodeHeaders(record.headers, record.key, record.time);
  const parsed = record.value === null ? undefined : parseJson(record.value);
  // A NUL has no place in a column. Services write none; what others wrote into their topics counts for nothing.
  const odd = envelope !== undefined && [envelope.subject, envelope.tenant, envelope.type, envelope.hash ?? ''].some((text) => text.includes('\u0000'));
  return envelope === undefined || odd || parsed?.ok !== true ? [] : [{ record, envelope, data: parsed.value }];
}

/** What an event answers: a command, a signal, or what was refused. */
function commandIn(data: Json): string | null {
  if (typeof data !== 'object' || data === null || Array.isArray(data)) return null;
  const { command, signal, id, cause } = data as { readonly [member: string]: Json };
  const caused = typeof cause === 'object' && cause !== null && !Array.isArray(cause) ? (cause as { readonly [member: string]: Json })['command'] : undefined;
  const name = command ?? caused ?? signal ?? id;
  return typeof name === 'string' && !name.includes('\u0000') ? name : null;
}
