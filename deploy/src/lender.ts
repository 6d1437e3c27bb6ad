import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { Kafka, logLevel } from 'kafkajs';
import type { KafkaServer } from './kafka.js';
import { withClient, type PostgresServer } from './postgres.js';

export type Servers = Readonly<{ kafka: KafkaServer; postgres: PostgresServer }>;

/** Where lent servers are; `id` is said when they are given back. */
export type Lent = Readonly<{ id: number; brokers: readonly string[]; databaseUrl: string }>;

/** How long those who had them may take to leave their groups: a killed member is forgotten after its session. */
const EMPTY_WITHIN_MS = 20_000;
const LOOK_EVERY_MS = 200;
/** So long it is better to wait for what is being emptied than to start another pair. */
const WORTH_WAITING_MS = 5000;
const ANSWER_MS = 10_000;

interface Pair {
  readonly id: number;
  readonly dir: string;
  readonly servers: Servers;
}

/**
 * Lends servers to one suite of tests after the other, each for itself alone: what comes back is
 * emptied, since that is quicker than a start, and stopped where it can't be.
 * `POST /lend` answers with a `Lent`, `POST /back/<id>` at once.
 */
export class Lender {
  readonly #start: (dir: string) => Promise<Servers>;
  readonly #dirOf: (id: number) => string;
  readonly #log: (line: string) => void;
  readonly #free: Pair[] = [];
  readonly #lent = new Map<number, Pair>();
  readonly #emptying = new Set<Promise<void>>();
  #made = 0;
  #closing = false;
  #server: Server | undefined;

  constructor(options: { readonly start: (dir: string) => Promise<Servers>; readonly dirOf: (id: number) => string; readonly log: (line: string) => void }) {
    this.#start = options.start;
    this.#dirOf = options.dirOf;
    this.#log = options.log;
  }

  /** The address at which it lends. */
  async listen(): Promise<string> {
    const server = createServer((request, response) => {
      this.#answer(request.url ?? '').then(
        (said) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(said)),
        (error: unknown) => response.writeHead(500).end(error instanceof Error ? error.message : String(error)),
      );
    });
    this.#server = server;
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#closing = true;
    this.#server?.closeAllConnections();
    this.#server?.close();
    await Promise.all(this.#emptying);
    await Promise.all([...this.#free.splice(0), ...this.#lent.values()].map((pair) => this.#end(pair)));
  }

  async #answer(url: string): Promise<Lent | null> {
    if (url === '/lend') return this.#lend();
    const pair = this.#lent.get(Number(/^\/back\/(\d+)$/.exec(url)?.[1]));
    if (pair === undefined) throw new Error(`nothing is lent at ${url}`);
    this.#lent.delete(pair.id);
    const emptying = this.#empty(pair).finally(() => this.#emptying.delete(emptying));
    this.#emptying.add(emptying);
    return null;
  }

  async #lend(): Promise<Lent> {
    if (this.#free.length === 0 && this.#emptying.size > 0) await Promise.race([...this.#emptying, sleep(WORTH_WAITING_MS, undefined, { ref: false })]);
    const pair = this.#free.pop() ?? (await this.#make());
    this.#lent.set(pair.id, pair);
    return { id: pair.id, brokers: pair.servers.kafka.brokers, databaseUrl: pair.servers.postgres.url() };
  }

  async #make(): Promise<Pair> {
    this.#made += 1;
    const id = this.#made;
    const dir = this.#dirOf(id);
    return { id, dir, servers: await this.#start(dir) };
  }

  async #empty(pair: Pair): Promise<void> {
    try {
      await Promise.all([emptyKafka(pair.servers.kafka.brokers, () => !this.#closing), emptyPostgres(pair.servers.postgres.url('postgres'))]);
      this.#free.push(pair);
    } catch (error) {
      this.#log(`servers ${pair.id} are stopped, since they can't be emptied: ${error instanceof Error ? error.message : String(error)}`);
      await this.#end(pair);
    }
  }

  async #end({ dir, servers }: Pair): Promise<void> {
    await Promise.all([servers.kafka.stop(), servers.postgres.stop()]);
    await rm(dir, { recursive: true, force: true });
  }
}

/** @throws when a group still has members: somebody has not gone, or is no longer waited for */
async function emptyKafka(brokers: readonly string[], goesOn: () => boolean): Promise<void> {
  const admin = new Kafka({ brokers: [...brokers], clientId: 'lender', logLevel: logLevel.NOTHING, connectionTimeout: ANSWER_MS, requestTimeout: ANSWER_MS }).admin();
  await admin.connect();
  try {
    const deadline = Date.now() + EMPTY_WITHIN_MS;
    for (;;) {
      const ids = (await admin.listGroups()).groups.map(({ groupId }) => groupId);
      const { groups } = ids.length === 0 ? { groups: [] } : await admin.describeGroups(ids);
      const taken = groups.filter(({ members }) => members.length > 0).map(({ groupId }) => groupId);
      if (taken.length === 0) {
        if (ids.length > 0) await admin.deleteGroups(ids);
        break;
      }
      if (Date.now() > deadline || !goesOn()) throw new Error(`there are members yet in ${taken.join(', ')}`);
      await sleep(LOOK_EVERY_MS);
    }
    const topics = (await admin.listTopics()).filter((name) => !name.startsWith('__'));
    if (topics.length > 0) await admin.deleteTopics({ topics, timeout: ANSWER_MS });
  } finally {
    await admin.disconnect();
  }
}

const emptyPostgres = (connectionString: string): Promise<void> =>
  withClient(connectionString, async (client) => {
    const { rows } = await client.query<{ datname: string }>(`select datname from pg_database where not datistemplate and datname <> 'postgres'`);
    for (const { datname } of rows) await client.query(`drop database ${client.escapeIdentifier(datname)} with (force)`);
  });
