import { cp, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { databaseUrl, LOCAL_PARTITIONS, LOCAL_SESSION_TIMEOUT_MS, makeStackFolder, SERVICES, sow, startStack, type ManagedProcess, type ServiceName, type ServiceSpec, type Stack } from '@holdfast/deploy';
import { decodeHeaders, topics, type Envelope, type Json } from '@holdfast/protocol';
import { ensureTopics, laneOf, tail, type Tail } from '@holdfast/runtime/kafka';
import { exactTypes, type LogRecord } from '@holdfast/runtime';
import { Kafka, logLevel, Partitioners, type Admin, type Producer } from 'kafkajs';
import pg from 'pg';
import { z } from 'zod';
import { eventually } from './eventually.js';

export { SERVICES, type ServiceName };
export const STACK_LIMIT_MS = 120_000;

/** Built, not source: services run in processes of their own. */
export const entryOf = (service: ServiceName): string => fileURLToPath(new URL(`../../../services/${service}/dist/main.js`, import.meta.url));

export interface TestStackOptions {
  readonly instances?: Partial<Record<ServiceName, number>>;
  readonly env?: Partial<Record<ServiceName, Record<string, string>>>;
  /** For suites that stop, freeze or set up Kafka or PostgreSQL; others have servers that an earlier suite had. */
  readonly ownServers?: boolean;
}

/** A record that services published, told once. */
export interface Seen {
  readonly topic: string;
  readonly lane: number;
  readonly offset: number;
  readonly envelope: Envelope;
  readonly data: { readonly [member: string]: Json };
}

export interface ToSend {
  readonly topic?: string;
  readonly key: string | Buffer | null;
  readonly type?: string | undefined;
  readonly value: string | Buffer | null;
  readonly headers?: Readonly<Record<string, string>>;
  readonly partition?: number;
}

export interface Place {
  readonly topic: string;
  readonly lane: number;
  readonly offset: number;
}

/** Kafka and PostgreSQL for this suite alone, from whoever started the tests; null where nobody lends any. */
async function borrow(): Promise<{ readonly env: Record<string, string>; giveBack(): Promise<void> } | null> {
  const lender = process.env['HOLDFAST_TEST_LENDER'];
  if (lender === undefined) return null;
  const ask = async (what: string): Promise<Response> => {
    const response = await fetch(`${lender}/${what}`, { method: 'POST' });
    if (!response.ok) throw new Error(`no servers for the tests: ${await response.text()}`);
    return response;
  };
  const { id, brokers, databaseUrl: url } = Lent.parse(await (await ask('lend')).json());
  return { env: { HOLDFAST_BROKERS: brokers.join(','), HOLDFAST_DATABASE_URL: url }, giveBack: async () => void (await ask(`back/${id}`)) };
}
const Lent = z.object({ id: z.number(), brokers: z.array(z.string()), databaseUrl: z.string() });

const WATCHED = [topics.runEvents, topics.effectEvents, topics.reconciliationEvents, topics.compensationEvents, topics.deadLetters];

/** A stack of its own for one file of tests, with what tests ask of it. */
export class TestStack {
  readonly seen: Seen[] = [];
  readonly #ids = new Set<string>();
  /** Next offset to be read, by `topic/lane`. */
  readonly #read = new Map<string, number>();
  readonly #pools = new Map<string, pg.Pool>();
  #tail: Tail | undefined;

  private constructor(
    readonly stack: Stack,
    readonly producer: Producer,
    readonly admin: Admin,
    private readonly giveBack: () => Promise<void>,
  ) {}

  static async start({ instances = {}, env = {}, ownServers = false }: TestStackOptions = {}): Promise<TestStack> {
    delete process.env['HOLDFAST_BROKERS'];
    delete process.env['HOLDFAST_DATABASE_URL'];
    const services = SERVICES.map((name): ServiceSpec => ({ name, instances: instances[name] ?? 1, entry: entryOf(name), env: env[name] }));
    const dir = await makeStackFolder('hf-test-');
    const seed = process.env['HOLDFAST_TEST_SEED'];
    const lent = ownServers ? null : await borrow();
    if (lent === null && seed !== undefined) await sow(seed, dir);
    const stack = await startStack({
      dir,
      durable: false,
      partitions: LOCAL_PARTITIONS,
      env: { HOLDFAST_SESSION_TIMEOUT_MS: String(LOCAL_SESSION_TIMEOUT_MS), ...lent?.env },
      services,
      // What a service said last is the only clue to why it died: its log goes with the stack.
      onServiceExit: (process, exit) => {
        void process.logTail().then((log) => /crash point .* reached/.test(log) || globalThis.process.stderr.write(`${process.name} ended by itself (${JSON.stringify(exit)}):\n${log}\n`));
      },
      prepare: (brokers, partitions) => ensureTopics(brokers, partitions),
    }).catch(async (error: unknown) => {
      await lent?.giveBack();
      throw error;
    });
    const kafka = new Kafka({ brokers: stack.brokers, clientId: 'outsider', logLevel: logLevel.NOTHING });
    const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, allowAutoTopicCreation: false });
    const admin = kafka.admin();
    const made = new TestStack(stack, producer, admin, lent?.giveBack ?? (() => Promise.resolve()));
    try {
      await Promise.all([producer.connect(), admin.connect()]);
      made.#tail = await tail({ brokers: stack.brokers, topics: WATCHED, from: 'beginning', onRecord: (record) => made.#note(record) });
      return made;
    } catch (error) {
      await made.stop();
      throw error;
    }
  }

  get brokers(): string[] {
    return this.stack.brokers;
  }

  async stop(): Promise<void> {
    await this.#tail?.close();
    await Promise.all([this.producer.disconnect(), this.admin.disconnect(), ...[...this.#pools.values()].map((pool) => pool.end())]);
    await this.stack.stop();
    await this.giveBack();
    const keep = process.env['HOLDFAST_TEST_LOGS'];
    if (keep !== undefined) await cp(path.join(this.stack.dir, 'services'), path.join(keep, path.basename(this.stack.dir)), { recursive: true });
    await rm(this.stack.dir, { recursive: true, force: true });
  }

  /** Writes as any Kafka client would; says where it stands. */
  async send({ topic = topics.agentIntents, key, type, value, headers = {}, partition }: ToSend): Promise<Place> {
    const [written] = await this.producer.send({
      topic,
      acks: -1,
      messages: [{ key, value, headers: { ...(type === undefined ? {} : { ce_type: type }), ...headers }, ...(partition === undefined ? {} : { partition }) }],
    });
    if (written === undefined) throw new Error('nothing was written');
    return { topic, lane: written.partition, offset: Number(written.baseOffset) };
  }

  intent(run: string, type: string, data: Json, headers: Readonly<Record<string, string>> = {}): Promise<Place> {
    return this.send({ key: run, type, value: JSON.stringify(data), headers });
  }

  /** A run without an agent whose first call is granted and succeeds. */
  async goodRun(run: string, tool: string, args: Json = { amount: 1 }): Promise<void> {
    await this.intent(run, 'StartRun', { agent: null, input: { for: run } });
    await this.intent(run, 'CallTool', { step: '1', tool: { name: tool, version: '1' }, args });
    await this.event(run, 'EffectSettled');
    await this.finish(run);
  }

  async finish(run: string): Promise<void> {
    await this.intent(run, 'FinishRun', { ending: { status: 'completed', output: { value: 'done' } } });
    await this.event(run, 'RunFinished');
  }

  events(run: string, topic: string = topics.runEvents): Seen[] {
    return this.seen.filter((record) => record.topic === topic && record.envelope.subject === run);
  }

  /** The first event of a type in a run's stream, when it comes; all that led to it, on whatever topic, has been seen by then. */
  async event(run: string, type: string, where: (data: Seen['data']) => boolean = () => true, topic: string = topics.runEvents): Promise<Seen> {
    const known = (): string => this.seen.filter(({ envelope }) => envelope.subject === run).map(({ envelope }) => envelope.type).join(', ');
    const found = await eventually(() => `${type} of run ${run} (known of it: ${known()})`, () => this.events(run, topic).find(({ envelope, data }) => envelope.type === type && where(data)));
    await this.#caughtUp();
    return found;
  }

  /** Each topic is read by itself: one may be behind another in what stands on both already. */
  async #caughtUp(): Promise<void> {
    const ends = await eventually('the ends of the topics', () => this.#endsOf(WATCHED).catch(() => undefined));
    const missing = (): string[] => Object.entries(ends).flatMap(([place, end]) => ((this.#read.get(place) ?? 0) < end ? [`${place} up to ${end}`] : []));
    await eventually(() => `our reader is behind: ${missing().join(', ')}`, () => missing().length === 0);
  }

  deadLetter(place: Place): Promise<Seen> {
    return eventually(`the dead letter of ${place.topic}/${place.lane} offset ${place.offset}`, () => this.deadLetters(place)[0]);
  }

  deadLetters({ topic, lane, offset }: Place): Seen[] {
    return this.seen.filter(({ envelope, data }) => envelope.type === 'DeadLetter' && data['topic'] === topic && data['partition'] === lane && data['offset'] === offset);
  }

  database(service: ServiceName): pg.Pool {
    return this.pool(`holdfast_${service}`);
  }

  /** A connection pool on any database of the server. */
  pool(name: string): pg.Pool {
    let pool = this.#pools.get(name);
    if (pool === undefined) {
      pool = new pg.Pool({ connectionString: databaseUrl(this.stack.databaseUrl, name), max: 4, types: exactTypes });
      pool.on('error', () => undefined);
      this.#pools.set(name, pool);
    }
    return pool;
  }

  async rows<Row extends pg.QueryResultRow>(service: ServiceName, query: string, values: unknown[] = []): Promise<Row[]> {
    return (await this.database(service).query<Row>(query, values)).rows;
  }

  async journalSize(service: ServiceName): Promise<number> {
    const [row] = await this.rows<{ rows: number }>(service, 'select count(*)::int as rows from journal');
    return row?.rows ?? 0;
  }

  /** Types of the rows of a service's journal about a record: those written since. */
  async journalSince(service: ServiceName, size: number): Promise<string[]> {
    const rows = await this.rows<{ type: string }>(service, 'select type from journal order by xmin::text::bigint, lane, seq offset $1', [size]);
    return rows.map(({ type }) => type).sort();
  }

  /** Next offset of every partition of every topic, by `topic/lane`. */
  async ends(): Promise<Record<string, number>> {
    const names = (await this.admin.listTopics()).filter((name) => !name.startsWith('__')).sort();
    return this.#endsOf(names);
  }

  async #endsOf(names: readonly string[]): Promise<Record<string, number>> {
    const found = await Promise.all(names.map(async (name) => ({ name, offsets: await this.admin.fetchTopicOffsets(name) })));
    return Object.fromEntries(found.flatMap(({ name, offsets }) => offsets.sort((a, b) => a.partition - b.partition).map(({ partition, offset }) => [`${name}/${partition}`, Number(offset)])));
  }

  laneOf(run: string): number {
    return laneOf(run, LOCAL_PARTITIONS);
  }

  /** A run id that lands on a lane. */
  runOn(lane: number, name: string): string {
    for (let i = 0; ; i += 1) if (this.laneOf(`${name}-${i}`) === lane) return `${name}-${i}`;
  }

  get lanes(): number[] {
    return Array.from({ length: LOCAL_PARTITIONS }, (_, lane) => lane);
  }

  service(name: ServiceName, number = 1): ManagedProcess {
    return this.stack.service(`${name}-${number}`);
  }

  /** What an instance logged, as parsed lines. */
  async log(instance: ManagedProcess): Promise<{ readonly msg?: string; readonly [member: string]: Json | undefined }[]> {
    const text = await readFile(instance.logFile, 'utf8');
    return text.split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line) as { msg?: string });
  }

  /** Why lanes stand still, by any instance's word. */
  async halts(): Promise<Json[]> {
    const logs = await Promise.all(this.stack.services.map((instance) => this.log(instance)));
    return logs.flat().filter(({ msg }) => msg === 'lane halted').map(({ reason }) => reason ?? null);
  }

  #note(record: LogRecord): void {
    this.#read.set(`${record.topic}/${record.lane}`, record.offset + 1);
    const envelope = decodeHeaders(record.headers, record.key, record.time);
    if (envelope?.seq === undefined) return;
    const id = `${record.topic}|${envelope.source}|${envelope.lane ?? ''}|${envelope.seq}`;
    if (this.#ids.has(id)) return;
    this.#ids.add(id);
    this.seen.push({ topic: record.topic, lane: record.lane, offset: record.offset, envelope, data: JSON.parse(record.value ?? '{}') as Seen['data'] });
  }
}
