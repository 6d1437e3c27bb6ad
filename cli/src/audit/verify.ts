import { isDeepStrictEqual } from 'node:util';
import pg from 'pg';
import { databaseOf, databaseUrl } from '@holdfast/deploy';
import { fold } from '@holdfast/kernel';
import { topics, type Message } from '@holdfast/protocol';
import { chainHash, exactTypes } from '@holdfast/runtime';
import { evolve as evolveRun, absent, type Run, type RunEvent } from '@holdfast/orchestrator/domain';
import { evolve as evolveEffects, isOpen, noEffects, type EffectEvent, type RunEffects } from '@holdfast/ledger/domain';
import { evolve as evolveCases, noCases, type CaseEvent, type RunCases } from '@holdfast/reconciliation/domain';
import { evolve as evolvePlans, noPlans, openPlan, type PlanEvent, type RunPlans } from '@holdfast/compensation/domain';
import { readStreams, type TopicStream } from './read-events.js';
import type { Anchor } from './anchor.js';

export interface Difference {
  readonly topic: string;
  readonly stream: string;
  readonly problem: string;
}

export interface VerifyResult {
  readonly streams: number;
  readonly events: number;
  readonly differences: readonly Difference[];
}

/** A service whose truth is a topic: how its streams fold, and whether one is at rest. */
interface Audited {
  readonly service: string;
  readonly topic: string;
  readonly fold: (events: readonly Message[]) => unknown;
  readonly isOpen: (events: readonly Message[]) => boolean;
}

const foldRun = (events: readonly Message[]): Run => fold(evolveRun, absent, events as readonly RunEvent[]);
const foldEffects = (events: readonly Message[]): RunEffects => fold(evolveEffects, noEffects, events as readonly EffectEvent[]);

const foldPlans = (events: readonly Message[]): RunPlans => fold(evolvePlans, noPlans, events as readonly PlanEvent[]);

const foldCases = (events: readonly Message[]): RunCases => fold(evolveCases, noCases, events as readonly CaseEvent[]);

const audited: readonly Audited[] = [
  { service: 'orchestrator', topic: topics.runEvents, fold: foldRun, isOpen: (events) => foldRun(events).status === 'open' },
  { service: 'ledger', topic: topics.effectEvents, fold: foldEffects, isOpen: (events) => [...foldEffects(events).values()].some(isOpen) },
  { service: 'reconciliation', topic: topics.reconciliationEvents, fold: foldCases, isOpen: (events) => [...foldCases(events).cases.values()].some(({ status }) => status === 'open') },
  { service: 'compensation', topic: topics.compensationEvents, fold: foldPlans, isOpen: (events) => openPlan(foldPlans(events)) !== null },
];

interface Row {
  readonly lane: number;
  readonly seq: number;
  readonly stream: string;
  readonly version: number;
  readonly type: string;
  readonly time: number;
  readonly tenant: string;
  readonly hash: string;
  readonly data: string;
}

/**
 * Folds the topics alone and compares with each service's database: rows, hash chains, states, and
 * that every open stream is on the agenda, and that the topics still hold what the broker has
 * acknowledged. With an anchor, also that no signed head was cut off from topic and database alike.
 */
export async function verify(options: { brokers: readonly string[]; databaseUrl: string; anchor?: Anchor; onProgress?: (text: string) => void }): Promise<VerifyResult> {
  const differences: Difference[] = [];
  let streams = 0;
  let events = 0;
  for (const audit of audited) {
    options.onProgress?.(`reading ${audit.topic} …`);
    const url = databaseUrl(options.databaseUrl, databaseOf(audit.service));
    // Before the topic is read: what counts as published by then must be on it.
    const acknowledged = await publishedUpTo(url);
    const published = await readStreams(options.brokers, audit.topic);
    streams += published.size;
    for (const { events: own } of published.values()) events += own.length;
    const report = (stream: string, problem: string): void => void differences.push({ topic: audit.topic, stream, problem });
    for (const { stream, problems } of published.values()) for (const problem of problems) report(stream, problem);
    if (options.anchor !== undefined) compareAnchor(audit.topic, options.anchor, published, report);
    options.onProgress?.(`comparing with the database of ${audit.service} …`);
    await compareDatabase(audit, url, published, acknowledged, report);
  }
  return { streams, events, differences };
}

function compareAnchor(topic: string, anchor: Anchor, published: ReadonlyMap<string, TopicStream>, report: (stream: string, problem: string) => void): void {
  for (const [stream, head] of Object.entries(anchor.heads[topic] ?? {})) {
    const event = published.get(stream)?.events.find(({ envelope }) => envelope.version === head.version);
    if (event === undefined) report(stream, `the anchor of ${anchor.at} has version ${head.version}, the topic no longer does: its tail was cut`);
    else if (event.envelope.hash !== head.hash) report(stream, `version ${head.version} hashes otherwise than in the anchor of ${anchor.at}: the history was rewritten`);
  }
}

async function connected<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url, types: exactTypes });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** The seq up to which each lane's rows were acknowledged by the broker. */
async function publishedUpTo(url: string): Promise<ReadonlyMap<number, number>> {
  const { rows } = await connected(url, (client) => client.query<{ lane: number; published: number }>('select lane, published from progress'));
  return new Map(rows.map(({ lane, published }) => [lane, published]));
}

async function compareDatabase(audit: Audited, url: string, published: ReadonlyMap<string, TopicStream>, acknowledged: ReadonlyMap<number, number>, report: (stream: string, problem: string) => void): Promise<void> {
  const { rows, agenda } = await connected(url, async (client) => ({
    rows: (await client.query<Row>('select lane, seq, stream, version, type, time, tenant, hash, data from journal where version is not null and topic = $1 order by stream, version', [audit.topic])).rows,
    agenda: (await client.query<{ stream: string }>('select stream from agenda where open')).rows,
  }));
  const open = new Set(agenda.map(({ stream }) => stream));
  const journal = new Map<string, Row[]>();
  for (const row of rows) {
    const stream = journal.get(row.stream);
    if (stream === undefined) journal.set(row.stream, [row]);
    else stream.push(row);
  }
  for (const stream of new Set([...published.keys(), ...journal.keys()])) {
    compareStream(audit, journal.get(stream) ?? [], published.get(stream), acknowledged, (problem) => report(stream, problem));
    const events = published.get(stream)?.events ?? [];
    if (audit.isOpen(events.map(({ envelope, data }) => ({ type: envelope.type, data }))) && !open.has(stream)) report(stream, 'is open but not on the agenda: nothing would ever wake it');
  }
}

function compareStream(audit: Audited, rows: readonly Row[], published: TopicStream | undefined, acknowledged: ReadonlyMap<number, number>, report: (problem: string) => void): void {
  const events = published?.events ?? [];
  let hash = '';
  for (const row of rows) {
    hash = chainHash(hash, row);
    if (hash !== row.hash) {
      report(`journal version ${row.version} (${row.type}) doesn't hash to what it says: the row, or one before it, was changed in the database`);
      return;
    }
  }
  const common = Math.min(rows.length, events.length);
  for (let i = 0; i < common; i += 1) {
    if (rows[i]?.hash !== events[i]?.envelope.hash) {
      report(`journal and topic differ from version ${i + 1} on`);
      return;
    }
  }
  if (events.length > rows.length) report(`the topic has ${events.length} events, the journal ${rows.length}: the database is behind what was published (a restore?)`);
  // Rows not yet published are the outbox's tail; only their age would be a fault, which health shows.
  const lost = rows.slice(events.length).filter(({ lane, seq }) => seq <= (acknowledged.get(lane) ?? 0));
  const [first] = lost;
  if (first !== undefined && (published?.problems.length ?? 0) === 0) {
    report(`the topic has lost ${lost.length === 1 ? 'an event' : `${lost.length} events`} that the broker had acknowledged, from version ${first.version} (${first.type}) on: its tail is gone`);
  }
  const fromTopic = audit.fold(events.slice(0, common).map(({ envelope, data }) => ({ type: envelope.type, data })));
  const fromJournal = audit.fold(rows.slice(0, common).map(({ type, data }) => ({ type, data: JSON.parse(data) as unknown })));
  if (!isDeepStrictEqual(fromTopic, fromJournal)) report('the fold of the topic is not the fold of the journal');
}
