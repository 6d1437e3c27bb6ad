import type { Json } from '@holdfast/protocol';
import { VICTIMS } from './cells.js';
import { FROZEN } from './frozen.js';
import type { Ground, RunPlan } from './ground.js';
import { judge, rowOf } from './judge.js';
import { CLOCK, loadOf, ofService, underLoad, type Case, type Disturbed } from './load.js';
import { OUTAGES } from './outages.js';
import { RESTORES } from './restores.js';
import type { Row } from './table.js';

export type { Case } from './load.js';

const WRONG_BY_MS = 5 * 60_000;
const WRONG_FOR_MS = 15_000;

/** Clocks that are wrong by minutes: nothing happens twice. A task may count as late at once, and then its run is told so, truly. */
const CLOCKS: readonly Case[] = VICTIMS.flatMap((victim) =>
  ([1, -1] as const).map((sign): Case => ({
    name: `clock of the ${victim} 5 minutes ${sign > 0 ? 'ahead' : 'behind'}`,
    run: async (ground, name) => {
      const process = await ground.victim(victim);
      const right = (): Promise<void> => process.restart({ [CLOCK]: undefined });
      await process.restart({ [CLOCK]: String(sign * WRONG_BY_MS) });
      const plans = loadOf(`clock-${victim}`, { ...ofService(victim), doubt: true }, 10);
      const disturb = async (): Promise<Disturbed> => {
        // What goes on in spite of it ends meanwhile; what is refused as late, or put off, has its turn once the clock is right.
        await ground.until('every run ends', () => ground.allEnded(plans), WRONG_FOR_MS).catch((error: unknown) => {
          if (ground.options.signal.aborted) throw error;
        });
        await right();
        return { since: Date.now() };
      };
      return underLoad(ground, name, plans, disturb, { share: 0, mayExpire: true }).catch(async (error: unknown) => {
        await right();
        throw error;
      });
    },
  })),
);

/** A harness of its own whose intents come twice and before their time. */
async function intents(ground: Ground, name: string): Promise<Row> {
  const { stack } = ground;
  const since = Date.now();
  const plans = stack.lanes.map((lane): RunPlan => ({ run: stack.runOn(lane, `intents-${since}`), tool: 'irreversible-granted', steps: 2 }));
  await Promise.all(plans.map(({ run }) => disorderly(ground, run)));
  await ground.until('the runs end', () => ground.allEnded(plans));
  const faults = plans.flatMap(({ run }) => (stack.events(run).some(({ envelope, data }) => envelope.type === 'EffectRequested' && data['step'] === '3') || ground.sink.arrivals.some((arrival) => arrival.run === run && arrival.step === '3') ? [`${run} has a step 3, which it asked for only after its end`] : []));
  return rowOf(name, judge(ground, plans), { recoveredMs: null, faults });
}

async function disorderly(ground: Ground, run: string): Promise<void> {
  const { stack } = ground;
  const start = () => stack.intent(run, 'StartRun', { agent: null, input: run });
  const call = (step: string) => stack.intent(run, 'CallTool', { step, tool: { name: 'irreversible-granted', version: '1' }, args: { n: Number(step), doubt: false, ms: 0, gate: null } });
  const finish = (value: Json) => stack.intent(run, 'FinishRun', { ending: { status: 'completed', output: { value } } });
  const result = async (step: string): Promise<Json> => ((await stack.event(run, 'EffectSettled', (data) => data['step'] === step)).data['outcome'] as { result: { value: Json } }).result.value;
  // Before its run is there: answered, and never carried out later.
  await stack.deadLetter(await call('1'));
  await finish([]);
  await Promise.all([start(), start()]);
  await Promise.all([call('2'), call('1'), call('2'), call('1')]);
  await finish([]); // Refused: steps are open.
  const ids = [await result('1'), await result('2')];
  await Promise.all([call('2'), start(), call('1')]);
  await Promise.all([finish(ids), finish(ids)]);
  await stack.event(run, 'RunFinished');
  await Promise.all([call('3'), call('1'), finish([])]);
}

export const CASES: readonly Case[] = [...OUTAGES, ...FROZEN, { name: 'external intents doubled and out of order', run: intents }, ...CLOCKS, ...RESTORES];
