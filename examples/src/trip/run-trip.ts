import { rm } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { createDatabase, databaseUrl, LOCAL_SESSION_TIMEOUT_MS, makeStackFolder, ManagedProcess, startHoldfast, type Stack } from '@holdfast/deploy';
import { topics } from '@holdfast/protocol';
import { tail } from '@holdfast/runtime/kafka';
import { HoldfastClient, serve } from '@holdfast/sdk';
import { TRIP_AGENT, tripAgent, tripTools } from './agent.js';
import { PROVIDERS, scenarios, type Provider, type Scenario } from './faults.js';

export interface TripRow {
  readonly run: string;
  /** How the run ended, and what became of what it did. */
  readonly outcome: string;
  /** What stands by the run's own word. */
  readonly named: readonly string[];
  /** What stands in the providers' books. */
  readonly standing: readonly string[];
  /** What is in the books that must never be there; null when all is well. */
  readonly fault: string | null;
}

export interface TripResult {
  readonly runs: number;
  readonly right: number;
  readonly bookings: number;
  readonly cancellations: number;
}

/** How a run ended or was compensated, and what stands by its own word. */
interface Word {
  readonly outcome: string;
  readonly named: readonly string[];
}

interface Entry {
  readonly run: string;
  readonly what: 'book' | 'cancel';
  readonly booking: string;
}

type Books = Readonly<Record<Provider, pg.Pool>>;

const PROVIDER = fileURLToPath(new URL('../../dist/trip/provider.js', import.meta.url));
const RUN_LIMIT_MS = 120_000;

/** Trips against four providers, on a stack of its own; judged by what stands in the providers' own databases. */
export async function runTrip({ faults, say }: { faults: boolean; say: (text: string) => void }): Promise<{ result: TripResult; rows: TripRow[] }> {
  const dir = await makeStackFolder('holdfast-trip-');
  let stack: Stack | undefined;
  const processes: ManagedProcess[] = [];
  const pools: pg.Pool[] = [];
  try {
    stack = await startHoldfast({ dir, log: say });
    const books: Partial<Record<Provider, pg.Pool>> = {};
    const urls: Partial<Record<Provider, string>> = {};
    for (const provider of PROVIDERS) {
      await createDatabase(stack.databaseUrl, `trip_${provider}`);
      const url = databaseUrl(stack.databaseUrl, `trip_${provider}`);
      const pool = new pg.Pool({ connectionString: url, max: 4 });
      pool.on('error', () => undefined);
      pools.push(pool);
      books[provider] = pool;
      const process = new ManagedProcess({ name: provider, entry: PROVIDER, dir: path.join(dir, 'providers'), env: { PROVIDER_DATABASE: url, PROVIDER_NAME: provider }, onOutput: (_, line) => {
        const found = urlIn(line);
        if (found !== undefined) urls[provider] = found;
      } });
      processes.push(process);
      await process.start();
    }
    return await play(stack, books as Books, urls as Record<Provider, string>, scenarios(faults), say);
  } finally {
    await Promise.all(processes.map((process) => process.stop()));
    await Promise.all(pools.map((pool) => pool.end()));
    await stack?.stop();
    await rm(dir, { recursive: true, force: true });
  }
}

function urlIn(line: string): string | undefined {
  try {
    return (JSON.parse(line) as { url?: string }).url;
  } catch {
    return undefined;
  }
}

async function play(stack: Stack, books: Books, urls: Record<Provider, string>, trips: readonly Scenario[], say: (text: string) => void): Promise<{ result: TripResult; rows: TripRow[] }> {
  for (const { run, fault } of trips) if (fault !== null) await books[fault.provider].query('insert into faults values ($1, $2, $3)', [run, fault.what, fault.fault]);
  const worker = await serve({ agents: [tripAgent()], tools: tripTools(urls), brokers: stack.brokers, worker: 'trip', sessionTimeoutMs: LOCAL_SESSION_TIMEOUT_MS, irreversibleConcurrency: 16, log: { info: () => undefined, warn: say, error: say } });
  const client = await HoldfastClient.connect({ brokers: stack.brokers });
  const words = new Words();
  await words.read(stack.brokers);
  try {
    const ended = await Promise.all(
      trips.map(async ({ run, calledOff }) => {
        await client.start(TRIP_AGENT, { cents: 10_000, calledOff }, { runId: run });
        const end = await words.of(run);
        say(`${run}: ${end.outcome}`);
        return end;
      }),
    );
    const entries = await entriesIn(books);
    const rows = trips.map((trip, index) => judged(trip, ended[index] ?? { outcome: 'no end', named: [] }, entries));
    const count = (what: Entry['what']): number => entries.filter((entry) => entry.what === what).length;
    return { rows, result: { runs: rows.length, right: rows.filter(({ fault }) => fault === null).length, bookings: count('book'), cancellations: count('cancel') } };
  } finally {
    await words.close();
    await client.close();
    await worker.stop();
  }
}

/** What runs say of what they did, from their own stream: it goes on after their end. */
class Words {
  readonly #said = new Map<string, Word>();
  #reader: { close(): Promise<void> } | undefined;

  async read(brokers: readonly string[]): Promise<void> {
    this.#reader = await tail({ brokers, topics: [topics.runEvents], from: 'beginning', onRecord: ({ key, headers, value }) => this.#note(key ?? '', String(headers['ce_type']), value ?? '{}') });
  }

  close(): Promise<void> {
    return this.#reader?.close() ?? Promise.resolve();
  }

  /** Once the run is over, and nothing that it did is being answered any more. */
  async of(run: string): Promise<Word> {
    for (const until = Date.now() + RUN_LIMIT_MS; Date.now() < until; ) {
      const said = this.#said.get(run);
      if (said !== undefined) return said;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return { outcome: 'no word on what it did', named: [] };
  }

  #note(run: string, type: string, value: string): void {
    const data = JSON.parse(value) as { ending: { status: string }; status: string; effects: { tool: { name: string }; outcome?: string; standing?: string }[] };
    const providers = (standing: readonly (string | undefined)[]): string[] => data.effects.filter((effect) => standing.includes(effect.standing ?? effect.outcome)).map(({ tool }) => tool.name.split('.')[0] ?? '');
    if (type === 'RunCompensated') this.#said.set(run, { outcome: data.status, named: providers(['stands', 'in_part', 'failed']) });
    if (type !== 'RunFinished') return;
    const may = providers(['succeeded', 'unknown']);
    if (data.ending.status === 'completed') this.#said.set(run, { outcome: 'completed', named: may });
    else if (may.length === 0) this.#said.set(run, { outcome: `${data.ending.status}, having done nothing`, named: [] });
  }
}

async function entriesIn(books: Books): Promise<(Entry & { readonly provider: Provider })[]> {
  const all = await Promise.all(PROVIDERS.map(async (provider) => (await books[provider].query<Entry & pg.QueryResultRow>('select run, what, booking from entries order by id')).rows.map((entry) => ({ ...entry, provider }))));
  return all.flat();
}

/** Holds the run's word against the books: what stands is what it names, once each, and nothing else. */
function judged({ run }: Scenario, { outcome, named }: Word, entries: readonly (Entry & { readonly provider: Provider })[]): TripRow {
  const standing: string[] = [];
  const faults: string[] = [];
  for (const provider of PROVIDERS) {
    const own = entries.filter((entry) => entry.run === run && entry.provider === provider);
    const [booked, cancelled] = [own.filter(({ what }) => what === 'book').length, own.filter(({ what }) => what === 'cancel').length];
    if (booked > 1) faults.push(`${provider} booked ${booked} times`);
    if (cancelled > booked) faults.push(`${provider} cancelled ${cancelled} times`);
    if (booked > cancelled) standing.push(provider);
  }
  if (standing.join() !== PROVIDERS.filter((provider) => named.includes(provider)).join()) faults.push(`it names ${named.join(', ') || 'nothing'}, and ${standing.join(', ') || 'nothing'} stands`);
  return { run, outcome, named, standing, fault: faults.length === 0 ? null : faults.join('; ') };
}
