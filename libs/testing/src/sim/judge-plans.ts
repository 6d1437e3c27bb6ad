import { dataOf, foldPlans } from './folds.js';
import { answeredBy, operationKey, type MessageOf, type CompensationDecided, type CompensationOrdered, type CompensationRegistered, type PlanConcluded, type Standing } from '@holdfast/protocol';
import type { JournalRow } from '@holdfast/runtime';
import type { Run } from '@holdfast/orchestrator';
import type { RunEffects } from '@holdfast/ledger';
import type { RunPlans } from '@holdfast/compensation';
import { resultOf, type Firing, type FakeWorld } from './world.js';

type Data<M> = MessageOf<M> extends { data: infer D } ? D : never;

export interface Plans {
  readonly id: string;
  readonly rows: readonly JournalRow[];
  readonly run: Run;
  readonly world: FakeWorld;
  readonly commands: readonly string[];
}

/** I10: what answers effects is looked at as it fires, and how all stands in the end. */
export class PlanJudge {
  readonly #registered = new Map<string, Data<typeof CompensationRegistered>>();
  readonly #ordered = new Map<string, Data<typeof CompensationOrdered>>();
  readonly #approved = new Set<string>();
  /** Effects that count as answered, or as standing, in the order of their run's stream. */
  readonly #settled = new Set<string>();
  /** What each plan has ordered something for. */
  readonly #begun = new Set<string>();
  /** Runs of which a plan means everything. */
  readonly #wholeRuns = new Set<string>();
  /** How much of each effect is answered under each key that has fired. */
  readonly #fired = new Map<string, Map<string, number>>();

  constructor(
    private readonly violated: (invariant: string, what: string) => void,
    private readonly world: FakeWorld,
    private readonly effectsOf: (run: string) => RunEffects,
  ) {}

  row(row: JournalRow): void {
    const { type, stream } = row;
    switch (type) {
      case 'CompensationRegistered': {
        const registered = dataOf(row) as Data<typeof CompensationRegistered>;
        // What is told of in its order takes its place in it.
        this.#registered.delete(`${stream}/${registered.step}`);
        this.#registered.set(`${stream}/${registered.step}`, registered);
        return;
      }
      case 'CompensationDecided': {
        const { of, decision, digest, by } = dataOf(row) as Data<typeof CompensationDecided>;
        if (!by.roles.includes('treasurer')) this.violated('I10', `${by.name} has decided on the answer to ${stream}/${of} without the role`);
        if (decision === 'approved') this.#approved.add(`${stream}/${of}/${digest}`);
        return;
      }
      case 'PlanOpened':
      case 'PlanWidened':
        if ((dataOf(row) as { scope: { kind: string } }).scope.kind === 'run') this.#wholeRuns.add(stream);
        return;
      case 'CompensationOrdered':
        return this.#order(stream, dataOf(row) as Data<typeof CompensationOrdered>);
      case 'CompensationReopened':
        this.#settled.delete(`${stream}/${(dataOf(row) as { of: string }).of}`);
        return;
      case 'CompensationSettled':
        this.#settled.add(`${stream}/${(dataOf(row) as { of: string }).of}`);
        return;
    }
  }

  #order(run: string, order: Data<typeof CompensationOrdered>): void {
    const { plan, of, step, part, key, digest } = order;
    const effect = this.#registered.get(`${run}/${of}`);
    const place = `the answer to ${run}/${of}`;
    this.#ordered.set(`${run}/${step}`, order);
    if (effect === undefined || effect.how === null) return this.violated('I10', `${place} was ordered, and its contract names none`);
    if (key !== operationKey({ scope: 'compensation', effect: effect.key, part })) this.violated('I10', `${place} has a key of its own making`);
    if (effect.how.authority !== 'automatic' && !this.#approved.has(`${run}/${of}/${digest}`)) this.violated('I10', `${place} was ordered, and nobody has approved it`);
    // What a plan has begun it goes on with.
    const closed = this.#begun.has(`${run}/${of}/${plan}`) ? null : this.#closedBy(run, of);
    this.#begun.add(`${run}/${of}/${plan}`);
    if (closed !== null) this.violated('I10', `${place} was ordered, and the point of no return ${closed} has been passed`);
    if (effect.how.order !== 'reverse') return;
    let later = false;
    for (const [name, other] of this.#registered) {
      if (name === `${run}/${of}`) later = true;
      else if (later && name.startsWith(`${run}/`) && other.how?.order === 'reverse' && this.#isWanted(run, other.step) && !this.#settled.has(name)) this.violated('I10', `${place} was ordered before the one to ${name}, which came later`);
    }
  }

  /** The point of no return that has happened, at or after an effect. */
  #closedBy(run: string, of: string): string | null {
    const effects = [...this.#registered].flatMap(([name, effect]) => (name.startsWith(`${run}/`) ? [effect] : []));
    const points = effects.slice(effects.findIndex(({ step }) => step === of)).filter(({ pointOfNoReturn }) => pointOfNoReturn === true);
    return points.find(({ step }) => this.effectsOf(run).get(step)?.status === 'succeeded')?.step ?? null;
  }

  /** What stands, or may, and is part of a whole run that is answered. */
  #isWanted(run: string, step: string): boolean {
    const status = this.effectsOf(run).get(step as never)?.status;
    return status === 'succeeded' && this.#wholeRuns.has(run);
  }

  /** Asked at each firing, before the world answers it. */
  firing({ run, step, key, tool, args, effect }: Firing): void {
    const answered = answeredBy(step as never);
    if (answered === null) return;
    const place = `${tool} at ${run}/${step}`;
    const order = this.#ordered.get(`${run}/${step}`);
    const of = this.#registered.get(`${run}/${answered.of}`);
    if (order === undefined || of === undefined) return this.violated('I10', `${place} fired without an order`);
    if (order.key !== key || order.tool.name !== tool || JSON.stringify(order.args) !== args) this.violated('I10', `${place} fired otherwise than it was ordered`);
    const status = this.effectsOf(run).get(answered.of)?.status;
    if (status !== 'succeeded') this.violated('I10', `${place} fired, and the effect that it answers is ${status ?? 'not known'}`);
    if (!this.world.hasHappened(of.key)) this.violated('I10', `${place} fired, and the effect that it answers never happened`);
    const fired = this.#fired.get(of.key) ?? new Map<string, number>();
    this.#fired.set(of.key, fired.set(key, amountOf(of, args)));
    if (sumOf(fired.values()) > wholeOf(of)) this.violated('I10', `${place} answers more of an effect than there is, under a key of its own`);
    const { seen } = JSON.parse(args) as { seen?: string };
    if (of.how?.precondition !== undefined && seen !== resultOf(of.tool.name, (of.args as { n: number }).n)) this.violated('I10', `${place} fired with ${seen ?? 'nothing'} as what the effect left`);
    const before = (this.world.byKey.get(key) ?? []).some((other) => other.applied);
    if (before && effect === 'irreversible') this.violated('I10', `${place} fired though it had taken effect`);
  }

  /** How it stands, once the world has come to rest. */
  judge({ id, rows, run, world, commands }: Plans): void {
    const plans = foldPlans(rows);
    const answers = new Map<string, number>();
    const escalated = new Set<string>();
    let concluded: Data<typeof PlanConcluded> | null = null;
    for (const row of rows) {
      const { type } = row;
      const { command, cause, of } = dataOf(row) as { command?: string; cause?: { command?: string }; of?: string };
      const said = command ?? cause?.command;
      if (said !== undefined) answers.set(said, (answers.get(said) ?? 0) + 1);
      if (type === 'CompensationEscalated' && of !== undefined) escalated.add(of);
      if (type === 'PlanConcluded') concluded = dataOf(row) as Data<typeof PlanConcluded>;
    }
    for (const command of new Set(commands)) if (answers.get(command) !== 1) this.violated('I1', `"${command}", said of a plan of ${id}, has ${answers.get(command) ?? 0} answers`);
    for (const { number, status } of plans.plans) if (status === 'open') this.violated('I10', `plan ${number} of ${id} was never concluded`);
    for (const [step, { settled }] of plans.items) {
      if (settled === null) this.violated('I10', `${id}/${step} was to be answered, and is neither answered nor said to stand`);
      else this.#standing(id, settled, escalated.has(step), world);
    }
    this.#nothingForgotten(id, plans, run, world);
    if (concluded !== null) this.#conclusion(id, concluded, run);
  }

  /** What is said of an effect is what the world says of it. */
  #standing(id: string, { step, key, standing, why, answers, amount }: Standing, escalated: boolean, world: FakeWorld): void {
    const place = `${id}/${step}`;
    const effect = this.#registered.get(place);
    const how = effect?.how;
    const whole = effect === undefined ? 1 : wholeOf(effect);
    const done = effect === undefined ? 0 : sumOf(new Map(answerFirings(world, id, step).flatMap((firing) => (firing.applied ? [[firing.key, amountOf(effect, firing.args)] as const] : []))).values());
    const isSo = { compensated: done === whole, in_part: done > 0 && done < whole, failed: done < whole, stands: done === 0, never_happened: done === 0 }[standing];
    if (!isSo) this.violated('I10', `${place} is called ${standing}, and ${done} of ${whole} of it is answered`);
    if (amount !== undefined && (amount.answered !== done || amount.whole !== whole)) this.violated('I10', `${place} is said to be answered with ${amount.answered} of ${amount.whole}, and is with ${done} of ${whole}`);
    if (standing === 'never_happened' && world.byKey.get(key)?.some((firing) => firing.applied && firing.run === id) === true) this.violated('I10', `${place} is called never_happened, and has happened`);
    if (standing === 'stands' && why.includes('point of no return') && this.#closedBy(id, step) === null) this.violated('I10', `${place} is let stand for a point of no return that has not been passed`);
    if (standing === 'compensated' && answers.some(({ verified, authorisedBy }) => (how?.verify === true && !verified) || authorisedBy === '')) this.violated('I10', `${place} is called compensated, and that is not verified or not authorised`);
    if (standing === 'failed' && !escalated && !why.startsWith('not tried')) this.violated('I10', `${place} is called failed, and nobody was told`);
  }

  /** Of a run that failed or was cancelled, everything that happened and can be answered has a standing. */
  #nothingForgotten(id: string, plans: RunPlans, run: Run, world: FakeWorld): void {
    if (run.status !== 'ended' || run.ending.status === 'completed' || run.ending.status === 'completed_partially') return;
    for (const [name, { step, key, how }] of this.#registered) {
      if (!name.startsWith(`${id}/`) || how === null || this.#closedBy(id, step) !== null) continue;
      const happened = world.byKey.get(key)?.some((firing) => firing.applied && firing.run === id) === true;
      const standing = plans.items.get(step)?.settled?.standing;
      if (happened && (standing === undefined || standing === 'never_happened')) this.violated('I10', `${name} has happened, its run is ${run.ending.status}, and it counts as ${standing ?? 'nothing'}`);
    }
  }

  #conclusion(id: string, { plan, status, effects }: Data<typeof PlanConcluded>, run: Run): void {
    const has = (standing: Standing['standing']): boolean => effects.some((effect) => effect.standing === standing);
    const wanted = has('failed') ? 'compensation_failed' : has('stands') || has('in_part') ? 'compensated_partially' : 'compensated';
    if (status !== wanted) this.violated('I10', `plan ${plan} of ${id} is called ${status}, and its effects come to ${wanted}`);
    // One that an agent asked for, in a run that went on and completed, shows as its wait.
    if (run.status !== 'ended' || run.compensation === null) return;
    if (run.compensation.plan !== plan || run.compensation.status !== status) this.violated('I10', `${id} shows plan ${run.compensation.plan} as ${run.compensation.status}; the last is ${plan}, ${status}`);
  }
}

type Effect = Data<typeof CompensationRegistered>;
/** What is answered of an effect that has no amount is all of it. */
const wholeOf = ({ how, args }: Effect): number => (how?.partial === undefined ? 1 : (args as { n: number }).n);
const amountOf = ({ how }: Effect, args: string): number => (how?.partial === undefined ? 1 : (JSON.parse(args) as { amount: number }).amount);
const sumOf = (amounts: Iterable<number>): number => [...amounts].reduce((sum, each) => sum + each, 0);

const answerFirings = (world: FakeWorld, run: string, step: string): readonly Firing[] => world.firings.filter((firing) => firing.run === run && firing.step.startsWith(`${step}~`));
