import { rm } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { createDatabase, databaseUrl, LOCAL_SESSION_TIMEOUT_MS, makeStackFolder, ManagedProcess, SERVICES, startHoldfast, type Stack } from '@holdfast/deploy';
import { HoldfastClient } from '@holdfast/sdk';
import { TASK_AGENT } from './agent.js';
import { killInTurn, killsInFlight, type Kill } from './killer.js';
import { personDecides } from './person.js';
import { seeded } from './random.js';
import { readTasks, type Task } from './task-file.js';
import { Watch } from './watch.js';
import { countWorld, lastRow, openWorld, type WorldCount } from './world.js';

export interface TaskOptions {
  readonly tasks: string;
  readonly world?: string | undefined;
  readonly kill: number;
  readonly seed: number;
  readonly reword: boolean;
  /** The tools have no probe; a stand-in for a person decides. */
  readonly blind: boolean;
  readonly say: (text: string) => void;
}

export interface TaskResult extends WorldCount {
  readonly runs: number;
  readonly completed: number;
  readonly blocked: number;
  readonly unknown: number;
  readonly kills: number;
  readonly killsInFlight: number;
  readonly seconds: number;
  readonly world: string;
}

export interface TaskRow {
  readonly run: string;
  readonly status: string;
  readonly steps: number;
  readonly effects: number;
  readonly ms: number | null;
  readonly unknown: readonly string[];
}

const WORKERS = 2;
/** Longer than the longest time that the ledger waits for an attempt, or a case for its next look. */
const STALLED_MS = 60_000;

/** Runs every task of a file on a stack of its own, kills what it is told to, and counts in the world. */
export async function runTasks(options: TaskOptions): Promise<{ result: TaskResult; rows: TaskRow[]; kills: Kill[] }> {
  const tasks = await readTasks(options.tasks);
  const dir = await makeStackFolder('holdfast-demo-');
  let stack: Stack | undefined;
  const workers: ManagedProcess[] = [];
  const watch = new Watch();
  try {
    stack = await startHoldfast({ dir, log: options.say });
    if (options.world === undefined) await createDatabase(stack.databaseUrl, 'demo_world');
    const worldUrl = options.world ?? databaseUrl(stack.databaseUrl, 'demo_world');
    const world = await openWorld(worldUrl);
    try {
      await watch.open(stack.brokers);
      const tools = [...new Set(tasks.flatMap(({ actions }) => actions.map(({ tool }) => tool)))];
      for (let i = 1; i <= WORKERS; i += 1) workers.push(worker(stack, dir, i, { DEMO_WORLD: worldUrl, DEMO_SEED: String(options.seed), DEMO_TOOLS: JSON.stringify(tools), DEMO_BLIND: String(options.blind) }));
      options.say(`starting ${WORKERS} workers …`);
      await Promise.all(workers.map((process) => process.start()));
      return await play({ ...options, stack, watch, workers, world, worldUrl, taskList: tasks });
    } finally {
      await world.end();
    }
  } finally {
    await watch.close();
    await Promise.all(workers.map((process) => process.stop()));
    await stack?.stop();
    await rm(dir, { recursive: true, force: true });
  }
}

function worker(stack: Stack, dir: string, number: number, env: Record<string, string>): ManagedProcess {
  const name = `worker-${number}`;
  return new ManagedProcess({
    name,
    entry: fileURLToPath(new URL('./worker.js', import.meta.url)),
    dir: path.join(dir, 'workers'),
    env: { ...stack.env, HOLDFAST_SESSION_TIMEOUT_MS: String(LOCAL_SESSION_TIMEOUT_MS), ...env, DEMO_WORKER: name },
  });
}

interface Playing extends Omit<TaskOptions, 'world'> {
  readonly stack: Stack;
  readonly watch: Watch;
  readonly workers: readonly ManagedProcess[];
  readonly world: Awaited<ReturnType<typeof openWorld>>;
  readonly worldUrl: string;
  readonly taskList: readonly Task[];
}

async function play(playing: Playing): Promise<{ result: TaskResult; rows: TaskRow[]; kills: Kill[] }> {
  const { stack, watch, workers, world, taskList, say } = playing;
  const client = await HoldfastClient.connect({ brokers: stack.brokers });
  const before = await lastRow(world);
  const begun = Date.now();
  let settledAll = false;
  const person = playing.blind ? personDecides({ stack, world, say, stopped: () => settledAll }) : Promise.resolve();
  const progress = setInterval(() => say(progressLine(watch, taskList.length)), 1000);
  try {
    const waiting = [...taskList];
    // With kills to come the runs are started one at a time, so that each kill finds work in flight.
    const more = (): boolean => {
      const next = waiting.splice(0, playing.kill === 0 ? waiting.length : 1);
      for (const { task, actions } of next) void client.start(TASK_AGENT, { actions: actions.map(({ tool, args }) => ({ tool, args })) }, { runId: task });
      return next.length > 0;
    };
    more();
    const killing = killInTurn({
      watch,
      times: playing.kill,
      chance: seeded(playing.seed),
      reword: playing.reword,
      more,
      victims: [
        ...stack.services.flatMap((process) => SERVICES.filter((service) => process.name.startsWith(service)).map((kind) => ({ process, kind }))),
        ...workers.map((process) => ({ process, kind: 'worker' as const })),
      ],
      onKill: ({ name }) => say(`kill -9 ${name}`),
    });
    const killed = await killing;
    while (more());
    await settled(watch, taskList);
    const seconds = (Date.now() - begun) / 1000;
    const rows = taskList.map((task) => rowOf(watch, task));
    const count = await countWorld(world, taskList, before);
    const result: TaskResult = {
      runs: taskList.length,
      completed: rows.filter(({ status }) => status === 'completed').length,
      blocked: rows.filter(({ status }) => status === 'blocked').length,
      ...count,
      unknown: rows.reduce((sum, { unknown }) => sum + unknown.length, 0),
      kills: killed.length,
      killsInFlight: killsInFlight(killed, watch),
      seconds: Math.round(seconds * 10) / 10,
      world: playing.worldUrl,
    };
    return { result, rows, kills: killed };
  } finally {
    clearInterval(progress);
    settledAll = true;
    await Promise.all([client.close(), person]);
  }
}

/** Every run has ended, or nothing has moved for longer than anything may take. */
async function settled(watch: Watch, tasks: readonly Task[]): Promise<void> {
  for (;;) {
    const runs = tasks.map(({ task }) => watch.runs.get(task));
    const open = runs.filter((run) => run === undefined || run.status === 'accepted' || run.status === 'blocked').length;
    const last = Math.max(0, ...[...watch.runs.values()].map(({ changedAt }) => changedAt));
    const quiet = last === 0 ? 0 : Date.now() - last;
    if (open === 0) return;
    if (quiet > STALLED_MS) return; // The table shows what stands still.
    await watch.change(500);
  }
}

function progressLine(watch: Watch, runs: number): string {
  const all = [...watch.runs.values()];
  const blocked = all.filter(({ status }) => status === 'blocked').length;
  return `${all.filter(({ endedAt }) => endedAt !== null).length}/${runs} runs ended, ${all.reduce((sum, { effects }) => sum + effects, 0)} effects intended${blocked === 0 ? '' : `, ${blocked} blocked`}`;
}

function rowOf(watch: Watch, { task }: Task): TaskRow {
  const run = watch.runs.get(task);
  if (run === undefined) return { run: task, status: 'never accepted', steps: 0, effects: 0, ms: null, unknown: [] };
  return {
    run: task,
    status: run.status === 'accepted' ? 'running' : run.status,
    steps: run.steps,
    effects: run.effects,
    ms: run.endedAt === null ? null : run.endedAt - run.startedAt,
    unknown: [...run.unknown].map(([step, message]) => `step ${step}: ${message}`),
  };
}
