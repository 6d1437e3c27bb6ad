import { DEFAULT_POOL } from '@holdfast/protocol';
import { interpreter, type Op } from '../sim/agents.js';
import { BEGINNING } from '../sim/scheduler.js';
import type { Choose } from './exploring-scheduler.js';
import { stage } from './stage.js';

const HORIZON_MS = 12_000;
/** Long enough for the first heartbeats. */
const WINDOW_MS = 600;

/** A run of local steps and a second worker that takes it over at any moment: each step is fired, and the run ends as it would have. */
export async function threeSteps(choose: Choose, { steps, crashes }: { readonly steps: number; readonly crashes: boolean }): Promise<readonly string[]> {
  const program: Op[] = Array.from({ length: steps }, (_, index) => ({ do: 'call', tool: 'mail.put', n: 0, target: `t${index}`, from: 'nothing' }));
  const { scheduler, cluster, world, begin, isSilent } = stage(choose, {
    instances: { orchestrator: 1, ledger: 0, worker: 2 },
    tool: 'mail.put',
    agents: () => [interpreter(() => program, () => ({ onWork: () => undefined, onCallback: () => undefined, newWords: () => '' }))],
    budgets: [{ kinds: ['crash_before', 'crash_after'], at: (site, process) => process.startsWith('worker-1') && (site === 'publish.intents' || site === 'fire.local'), left: crashes ? 1 : 0 }],
    windowMs: WINDOW_MS,
    actions: [{ name: 'worker-1 is counted out', act: () => cluster.coordinator(`holdfast.workers.${DEFAULT_POOL}`).countOut('worker-1#1') }],
  });
  world.isUnasked = true;
  cluster.startOne('orchestrator-1');
  cluster.startOne('worker-1');
  await scheduler.run(() => false, BEGINNING + 200);
  cluster.startOne('worker-2');
  await scheduler.run(() => false, BEGINNING + 1000);
  cluster.ask({ id: 'run-1', agent: { name: 'interpreter', version: '1' }, input: null, askedTwice: false });
  begin();
  await scheduler.run(() => cluster.run('run-1').status === 'ended' && cluster.isDrained() && isSilent(), BEGINNING + HORIZON_MS);
  const run = cluster.run('run-1');
  const output = run.status === 'ended' && run.ending.status === 'completed' && 'value' in run.ending.output ? JSON.stringify(run.ending.output.value) : null;
  if (output !== JSON.stringify(program.map(() => 'mail.put:0'))) cluster.core.violated('equality', `run-1 is ${run.status}, it returned ${output ?? 'nothing'}`);
  if (world.byKey.size !== steps) cluster.core.violated('I1', `${world.byKey.size} of ${steps} steps were fired`);
  for (const firings of world.byKey.values()) if (new Set(firings.map(({ args }) => args)).size > 1) cluster.core.violated('I4', 'one key fired with several arguments');
  return cluster.core.violations;
}
