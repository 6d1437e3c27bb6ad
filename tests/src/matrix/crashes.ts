import { open } from 'node:fs/promises';
import type { ManagedProcess } from '@holdfast/deploy';
import type { CrashCell, Victim } from './cells.js';
import type { Ground, RunPlan } from './ground.js';
import { judge, rowOf } from './judge.js';
import type { Row } from './table.js';

const STEPS = 2;
const RUNS_END_WITHIN_MS = 150_000;
const NOTICED_WITHIN_MS = 3000;
const ROUNDS_MAX = 6;
const NOT_COPIED = 'nothing of it was delivered twice';
const NOT_REACHED = 'its boundary was not reached';
const ARMED = 'HOLDFAST_CRASH_AT';

interface Armed {
  readonly cell: CrashCell;
  readonly plan: RunPlan;
  /** The crash point's setting. */
  readonly setting: string;
  crashedAt: number | null;
}

/**
 * One process armed for many cells: whenever it dies at some of their boundaries it is started again,
 * armed for the rest. What it says last names what it reached.
 */
class ArmedProcess {
  readonly #left: Map<string, Armed>;
  readonly faults: string[] = [];
  #read = 0;
  #stopping = false;
  #watching: Promise<void> = Promise.resolve();
  #starting: Promise<void> = Promise.resolve();

  constructor(
    private readonly process: ManagedProcess,
    armed: readonly Armed[],
  ) {
    this.#left = new Map(armed.map((each) => [each.setting, each]));
  }

  async arm(): Promise<void> {
    await this.process.restart({ [ARMED]: [...this.#left.keys()].join(',') });
    this.#watching = this.#watch();
  }

  /** Cells whose boundary was not reached are given up; another crash would be nobody's. */
  forget(cells: readonly Armed[]): void {
    for (const { setting } of cells) this.#left.delete(setting);
  }

  async disarm(): Promise<void> {
    this.#stopping = true;
    await this.#starting; // A process that is stopped amid its start would count as one that could not start.
    if (this.process.pid !== undefined) await this.process.stop();
    await this.#watching;
    await this.process.start({ [ARMED]: undefined });
  }

  async #watch(): Promise<void> {
    while (!this.#stopping) {
      const exit = await this.process.exited;
      if (this.#stopping) return;
      const now = Date.now();
      const reached = await this.#reached();
      if (reached.length === 0) this.faults.push(`${this.process.name} ended by itself (${exit.signal ?? `code ${exit.code ?? '?'}`})`);
      for (const setting of reached) {
        const armed = this.#left.get(setting);
        if (armed !== undefined) armed.crashedAt = now;
        this.#left.delete(setting);
      }
      this.#starting = this.process.start({ [ARMED]: this.#left.size === 0 ? undefined : [...this.#left.keys()].join(',') });
      await this.#starting;
    }
  }

  /** Crash points named in its log since we last looked. */
  async #reached(): Promise<string[]> {
    const file = await open(this.process.logFile, 'r');
    try {
      const { size } = await file.stat();
      const { buffer, bytesRead } = await file.read(Buffer.alloc(size - this.#read), 0, size - this.#read, this.#read);
      this.#read = size;
      return [...buffer.toString('utf8', 0, bytesRead).matchAll(/^crash point (\S+) reached$/gm)].map(([, setting]) => setting ?? '');
    } finally {
      await file.close();
    }
  }
}

/** Runs the cells of one process, boundary by boundary; those of one boundary at once. */
export async function crashProcess(ground: Ground, victim: Victim, cells: readonly CrashCell[], done: (rows: readonly Row[], boundary: string, ms: number) => void): Promise<void> {
  const armedFor = (some: readonly CrashCell[], round: number): Armed[] =>
    some.map((cell) => {
      const run = `${victim}-${cells.indexOf(cell)}-${cell.effect}-${cell.delivery}-${round}`;
      return { cell, plan: { run, tool: cell.tool, steps: STEPS, doubt: cell.doubt, back: cell.back, waits: cell.waits, called: victim === 'gateway' }, setting: `${cell.point}@${run}/${cell.about}`, crashedAt: null };
    });
  const armed = Array.from({ length: ROUNDS_MAX }, (_, round) => armedFor(cells, round)).flat();
  const process = new ArmedProcess(await ground.victim(victim), armed);
  await process.arm();
  try {
    for (const boundary of new Set(cells.map((cell) => cell.boundary))) {
      const since = Date.now();
      const rows = new Map<CrashCell, Row>();
      let left = cells.filter((cell) => cell.boundary === boundary);
      // Where the crash of one run's cell carries another past its boundary, that one has its turn in the next round.
      for (let round = 0; left.length > 0 && round < ROUNDS_MAX; round += 1) {
        const group = armed.filter(({ cell, plan }) => left.includes(cell) && plan.run.endsWith(`-${round}`));
        for (const [cell, row] of await crashBoundary(ground, process, group)) rows.set(cell, row);
        left = group.filter(({ cell, crashedAt }) => crashedAt === null && rows.get(cell)?.because === NOT_REACHED).map(({ cell }) => cell);
      }
      process.forget(armed.filter(({ cell }) => cell.boundary === boundary));
      done([...rows.values()], boundary, Date.now() - since);
    }
  } finally {
    await process.disarm().catch((error: unknown) => ground.options.say(`${victim} could not be put right: ${String(error)}`));
  }
}

async function crashBoundary(ground: Ground, process: ArmedProcess, group: readonly Armed[]): Promise<[CrashCell, Row][]> {
  const plans = group.map(({ plan }) => plan);
  for (const { cell, plan } of group) ground.copier.follow(plan.run, cell.delivery);
  await ground.begin(plans);
  const ended = await ground.until('the runs end', async () => {
    await ground.attend(plans);
    return ground.allEnded(plans);
  }, RUNS_END_WITHIN_MS).catch((error: unknown) => {
    if (ground.options.signal.aborted) throw error;
    return false;
  });
  // A process that dies after its run's last record is published dies after we have read that record.
  const noticed = ground.until('every crash is noticed', () => group.every(({ crashedAt }) => crashedAt !== null), NOTICED_WITHIN_MS);
  await noticed.catch((error: unknown) => {
    if (ground.options.signal.aborted) throw error;
  });
  for (const { run } of plans) await ground.copier.release(run);
  const unexpected = process.faults.splice(0);
  const called = await Promise.all(plans.map((plan) => ground.calledFaults(plan)));
  return group.map(({ cell, plan, crashedAt }, index) => {
    const endedAt = ground.view(plan.run).endedAt;
    const faults = [...(called[index] ?? []), ...(crashedAt === null ? [NOT_REACHED] : []), ...(cell.delivery !== 'once' && ground.copier.copiesOf(plan.run) === 0 ? [NOT_COPIED] : []), ...(ended ? unexpected : [])];
    return [cell, rowOf(cell.name, judge(ground, [plan]), { recoveredMs: crashedAt === null || endedAt === null ? null : Math.max(0, endedAt - crashedAt), faults })];
  });
}
