import { createHash } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { brokerPids, databasePids, freeze } from './frozen.js';
import { Ground } from './ground.js';
import { loadOf, ofService, underLoad, type Case } from './load.js';
import { auditRow, runCase } from './run-matrix.js';
import { closing, type Row } from './table.js';

const { values } = parseArgs({ options: { minutes: { type: 'string', default: '10' }, seed: { type: 'string' }, only: { type: 'string' }, help: { type: 'boolean', default: false } } });
const say = (line: string): void => void process.stderr.write(`${line}\n`);

const START_TRIES = 30;
const START_EVERY_MS = 500;

interface Server {
  kill(): Promise<unknown>;
  stop(): Promise<unknown>;
  start(): Promise<unknown>;
}

/** Draws that all follow from the seed. What is drawn when depends on the machine, so a seed gives the faults again and not their moments. */
class Draws {
  #count = 0;

  constructor(private readonly seed: string) {}

  /** In [0, 1). */
  next(): number {
    this.#count += 1;
    return createHash('sha256').update(`${this.seed}/${this.#count}`).digest().readUInt32BE() / 2 ** 32;
  }

  between(least: number, most: number): number {
    return Math.round(least + this.next() * (most - least));
  }

  oneOf<T>(all: readonly T[]): T {
    const found = all[Math.floor(this.next() * all.length)];
    if (found === undefined) throw new Error('there is nothing to draw from');
    return found;
  }
}

/** As whoever looks after processes does it: one that can't start while what it needs is away is started again. */
async function started(server: Server | undefined, tries = START_TRIES): Promise<void> {
  try {
    await server?.start();
  } catch (error) {
    if (tries <= 1) throw error;
    say('    it could not start yet');
    await pause(START_EVERY_MS);
    await started(server, tries - 1);
  }
}

/** What may befall a stack; each says what it does, and resolves when it is over. */
function faultsOf(ground: Ground, draws: Draws): Record<string, () => Promise<void>> {
  const { kafka, postgres } = ground.stack.stack;
  const away = (what: string, server: Server | undefined, how: 'kill' | 'stop') => async (): Promise<void> => {
    const ms = draws.between(0, 4000);
    say(`    ${what}: ${how}, away for ${ms} ms`);
    await server?.[how]();
    await pause(ms);
    await started(server);
  };
  const frozen = (what: string, pids: () => Promise<readonly number[]>, most: number) => async (): Promise<void> => {
    const ms = draws.between(1000, most);
    say(`    ${what}: frozen for ${ms} ms`);
    await freeze(await pids(), ms);
  };
  return {
    'broker-killed': away('broker', kafka, 'kill'),
    'broker-stopped': away('broker', kafka, 'stop'),
    'broker-frozen': frozen('broker', () => brokerPids(ground), 15_000),
    'database-killed': away('database', postgres, 'kill'),
    'database-stopped': away('database', postgres, 'stop'),
    'database-frozen': frozen('database', () => databasePids(ground), 13_000),
    'process-killed': async () => {
      const victim = draws.oneOf(ground.processes);
      await away(victim.name, victim, 'kill')();
    },
    'process-frozen': async () => {
      const { name, pid } = draws.oneOf(ground.processes);
      await frozen(name, () => Promise.resolve(pid === undefined ? [] : [pid]), 9000)();
    },
  };
}

/** One or two faults while sixteen runs are under way; half of the time the second comes before the first is over. */
function round(number: number, draws: Draws, only: readonly string[] | undefined): Case {
  return {
    name: `round ${number}`,
    run: (ground, name) => {
      const faults = faultsOf(ground, draws);
      const names = Object.keys(faults).filter((each) => only?.includes(each) ?? true);
      const befall = async (which: string): Promise<void> => faults[which]?.();
      const about = draws.oneOf([{}, ofService('reconciliation'), ofService('compensation')]);
      return underLoad(ground, name, loadOf(`soak${number}`, about), async () => {
        const first = draws.oneOf(names);
        const under = befall(first);
        under.catch(() => undefined); // Until it is waited for, its failure is nobody's.
        if (draws.next() < 0.5) await under;
        else await pause(draws.between(0, 2000));
        // Two hands on one server or process would only be in each other's way.
        const others = names.filter((each) => each.split('-')[0] !== first.split('-')[0]);
        const second = others.length > 0 && draws.next() < 0.5 ? befall(draws.oneOf(others)) : Promise.resolve();
        // Both come to their end, also where one fails: nobody else would start again what they stopped.
        for (const result of await Promise.allSettled([under, second])) if (result.status === 'rejected') throw result.reason;
        return { since: Date.now() };
      }, { share: draws.between(2, 40) / 100 });
    },
  };
}

async function main(): Promise<void> {
  if (values.help) {
    process.stdout.write(`npm run soak               random faults on a real stack under load, judged by the world outside
  --minutes N    for so long (10)
  --seed TEXT    the same draws again
  --only A,B     ${'broker-killed, broker-stopped, broker-frozen, database-…, process-killed, process-frozen'}
`);
    return;
  }
  const minutes = Number(values.minutes);
  if (!(minutes > 0)) throw new Error(`--minutes ${values.minutes} is no time`);
  const seed = values.seed ?? String(Date.now() % 1_000_000);
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => (stop.signal.aborted ? process.exit(130) : stop.abort()));
  say(`Starting Kafka, PostgreSQL, services and a worker; seed ${seed} ...`);
  const ground = await Ground.open({ say, signal: stop.signal });
  const rows: Row[] = [];
  try {
    const draws = new Draws(seed);
    const until = Date.now() + minutes * 60_000;
    for (let number = 1; Date.now() < until && !stop.signal.aborted; number += 1) {
      say(`round ${number}`);
      const row = await runCase(ground, round(number, draws, values.only?.split(',')), false);
      rows.push(row);
      say(`    ${row.verdict}, recovered in ${row.recoveredMs ?? '–'} ms${row.because === null ? '' : `: ${row.because}`}`);
    }
    rows.push(await auditRow(ground));
  } catch (error) {
    if (!stop.signal.aborted) throw error;
  } finally {
    say('Stopping ...');
    await ground.close();
  }
  for (const row of rows) if (row.verdict === 'failed') process.stdout.write(`${row.case}: ${row.because ?? ''}\n`);
  process.stdout.write(`${closing(rows)}, seed ${seed}\n`);
  process.exitCode = stop.signal.aborted ? 130 : rows.some(({ verdict }) => verdict === 'failed') ? 1 : 0;
}

main().then(
  () => process.exit(),
  (error: unknown) => {
    say(error instanceof Error ? (error.stack ?? error.message) : String(error));
    process.exit(2);
  },
);
