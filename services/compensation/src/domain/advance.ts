import { unreachable } from '@holdfast/kernel';
import {
  ArgumentsAsked,
  ArgumentsKnown,
  ArgumentsMissing,
  CompensationApprovalAsked,
  CompensationEscalated,
  CompensationOrdered,
  CompensationReopened,
  CompensationSettled,
  compensationStep,
  digestOf,
  EffectDoubted,
  operationKey,
  PlanConcluded,
  PlanOpened,
  PlanWidened,
  VerificationAsked,
  VerificationConcluded,
  type CompensationContract,
  type Instant,
  type PlanCause,
  type PlanScope,
  type Standing,
  type Step,
} from '@holdfast/protocol';
import { completed, declared } from './arguments.js';
import type { Looking } from './commands.js';
import { blockers, covers, wayBack } from './order.js';
import { evolve, lastPart, newItem, openPlan, type Item, type Known, type Ordered, type Plan, type PlanEvent, type Registered, type RunPlans } from './plan.js';
import { answeredAmount, conclusionOf, isVerified, standingOf, wantedOf, wholeOf } from './standing.js';

/** How long an answer of a host is waited for, and how soon it is asked again. Milliseconds. */
export const ANSWER_WITHIN_MS = 10_000;
const ASK_AGAIN = { initialMs: 1000, maxMs: 60_000 };
/** Questions without an answer before people are told. */
const ASKS_BEFORE_PEOPLE = 3;
/** Looks that don't find a compensation that its tool reported as done, before it counts as failed. */
export const LOOKS_MAX = 6;
/** An effect that its worker fired by itself, and of which nobody has said anything so long after its run was over, is in doubt. Milliseconds. */
export const DOUBT_AFTER_MS = 15_000;
/** So long after a plan was opened people are told that nobody serves the tool that it needs. Milliseconds. */
export const NO_HOST_AFTER_MS = 30_000;

/** All that follows by itself from how a run's plan stands: the events that bring it on, until somebody else has to move. */
export function advance(run: RunPlans, looking: Looking): PlanEvent[] {
  const events: PlanEvent[] = [];
  let now = run;
  for (let event = next(now, looking); event !== null; event = next(now, looking)) {
    events.push(event);
    now = evolve(now, event);
  }
  return events;
}

/** One plan at a time: another cause joins it. */
export function openedFor(run: RunPlans, cause: PlanCause, scope: PlanScope, { at }: Pick<Looking, 'at'>): PlanEvent {
  const open = openPlan(run);
  return open === null ? PlanOpened({ plan: run.plans.length + 1, cause, scope, at }) : PlanWidened({ plan: open.number, cause, scope, at });
}

/** Effects that a plan means, in the order in which they were asked for. */
export const meant = (run: RunPlans, { scopes }: Plan): Registered[] => [...run.effects.values()].filter(({ step }) => scopes.some((scope) => covers(scope, step)));

function next(run: RunPlans, looking: Looking): PlanEvent | null {
  const plan = openPlan(run);
  if (plan === null) return null;
  const effects = meant(run, plan);
  let open = false;
  // The latest first: what is written down reads as it is done.
  for (const effect of effects.toReversed()) {
    const event = new Turn(run, plan, effect, looking).next();
    if (event !== null) return event;
    open ||= (run.items.get(effect.step)?.settled ?? null) === null;
  }
  return open ? null : PlanConcluded(conclusionOf(run, plan));
}

/** Whether an effect waits for a tool that no worker has declared: somebody must look again, since nothing tells of it. */
export function lacksHost(run: RunPlans, { contract }: Pick<Looking, 'contract'>): boolean {
  const plan = openPlan(run);
  return plan !== null && meant(run, plan).some(({ step, how, tool }) => how !== null && run.known.get(step)?.status === 'succeeded' && (run.items.get(step)?.settled ?? null) === null && (contract(how.tool) === null || (how.args === 'host' && contract(tool) === null)));
}

/** When a plan needs attention by itself; null: only news can move it. */
export function dueAt(run: RunPlans): Instant | null {
  const plan = openPlan(run);
  if (plan === null) return null;
  const times = meant(run, plan).flatMap((effect) => timesOf(run, plan, effect));
  return times.length === 0 ? null : Math.min(...times);
}

function timesOf(run: RunPlans, plan: Plan, { step, how, fire }: Registered): Instant[] {
  const item = run.items.get(step) ?? newItem(plan.number);
  if (item.settled !== null) return [];
  const verification = lastPart(item)?.verification;
  const times = [item.answerBy, item.nextAskAt, verification?.answerBy, verification?.nextLookAt].filter((at) => at !== null && at !== undefined);
  if (how !== null && !item.escalated.has('overdue')) times.push(plan.openedAt + how.deadlineMs);
  if (fire === 'local' && !run.known.has(step) && run.ending !== null && !item.doubted) times.push(plan.openedAt + DOUBT_AFTER_MS);
  if (how !== null && run.known.get(step)?.status === 'succeeded' && lastPart(item) === null && !item.escalated.has('no_host')) times.push(plan.openedAt + NO_HOST_AFTER_MS);
  return times;
}

/** What comes next for one effect of a plan. */
class Turn {
  readonly #item: Item;
  constructor(
    readonly run: RunPlans,
    readonly plan: Plan,
    readonly effect: Registered,
    readonly looking: Looking,
  ) {
    this.#item = run.items.get(effect.step) ?? newItem(plan.number);
  }

  get #of(): { plan: number; of: Step } {
    return { plan: this.plan.number, of: this.effect.step };
  }

  next(): PlanEvent | null {
    const { settled } = this.#item;
    if (settled !== null) return this.#again(settled);
    return this.#step() ?? this.#overdue();
  }

  /** What was settled before, by this plan or an earlier one, and does not stay so. */
  #again({ standing }: Standing): PlanEvent | null {
    const known = this.run.known.get(this.effect.step);
    const reopened = (because: string): PlanEvent => CompensationReopened({ ...this.#of, because });
    if (standing === 'never_happened') return known?.status === 'succeeded' || known?.status === 'unknown' ? reopened('it has happened, or may have, after all') : null;
    if (wayBack(this.run, this.effect.step).is === 'closed') return null;
    if (standing === 'in_part') return this.#isMoreWanted(known) ? reopened('more of it is to be answered') : null;
    if (this.#item.plan === this.plan.number) return null;
    if (standing === 'failed') return reopened('an earlier answer had failed');
    const named = this.plan.scopes.some((scope) => scope.kind === 'steps' && scope.steps.includes(this.effect.step));
    return standing === 'stands' && named ? reopened('it was named again') : null;
  }

  #isMoreWanted(known: Known | undefined): boolean {
    return known !== undefined && (this.#rest(known) ?? 0) > 0;
  }

  #settled(standing: Standing['standing'], why: string): PlanEvent {
    return CompensationSettled({ ...this.#of, standing: standingOf(this.effect, this.#item, this.run.known.get(this.effect.step), standing, why) });
  }

  #step(): PlanEvent | null {
    const { effect, run, plan, looking } = this;
    const { how, step } = effect;
    const known = run.known.get(step);
    if (known?.status === 'rejected' || known?.status === 'failed') return this.#settled('never_happened', `it was ${known.status}: ${known.message}`);
    if (known?.status === 'not_ours') return this.#settled('never_happened', known.message);
    const way = wayBack(run, step);
    // What this plan has begun is not left half done.
    const begun = lastPart(this.#item)?.plan === plan.number;
    if (way.is === 'closed' && !begun) return this.#settled(answeredAmount(this.#item) > 0 ? 'in_part' : 'stands', `step ${way.at} is a point of no return: the run only goes forward from there`);
    // Whoever fired it by itself is gone: the ledger has it settled.
    if (known === undefined && effect.fire === 'local' && run.ending !== null && !this.#item.doubted && looking.at >= plan.openedAt + DOUBT_AFTER_MS) {
      const { key, tool, args, digest } = effect;
      return EffectDoubted({ step, key, tool, effect: effect.effect, args, digest, because: 'its run is over, and its worker never said what became of it' });
    }
    // Nobody knows yet whether there is a way back: what would be answered now might have to stand.
    if (way.is === 'unclear' && !begun) return null;
    if (how === null) return this.#settled('stands', 'its contract names no compensation');
    // Unknown is settled first, by whoever settles it.
    return known?.status === 'succeeded' ? this.#answer(how, known) : null;
  }

  #answer(how: CompensationContract, known: Known): PlanEvent | null {
    const last = lastPart(this.#item);
    switch (last?.known?.status) {
      case undefined:
        return last === null ? this.#begin(how, known, null) : null; // It is under way.
      case 'unknown':
        return null; // Its case settles it.
      case 'succeeded':
        return this.#succeeded(how, known, last as Ordered);
      case 'rejected':
      case 'failed':
        return this.#failed(how, known, last as Ordered);
      default:
        return unreachable(last as never);
    }
  }

  #succeeded(how: CompensationContract, known: Known, last: Ordered): PlanEvent | null {
    const probe = this.looking.contract(last.tool)?.probe ?? null;
    if (how.verify && probe !== null && !isVerified(last)) return this.#verify(last);
    const rest = this.#rest(known);
    if (rest !== null && rest > 0) return this.#begin(how, known, null);
    const whole = wholeOf(this.effect, known);
    const full = whole === null || answeredAmount(this.#item) >= whole;
    return this.#settled(full ? 'compensated' : 'in_part', full ? `answered by ${last.tool.name}` : `${answeredAmount(this.#item)} of ${whole ?? 0} answered, the rest stands as asked`);
  }

  #failed(how: CompensationContract, known: Known, last: Ordered): PlanEvent | null {
    const { args } = this.#item;
    // Taken up again, it has no arguments yet, and goes on under the key that it has.
    if (args === null || last.plan !== this.plan.number) return this.#begin(how, known, last);
    const message = last.known?.message ?? '';
    if (last.known?.changedSince === true) return this.#settled('stands', `somebody has changed it since, and that is not overwritten: ${message}`);
    if (!this.#item.escalated.has('failed')) return this.#escalated('failed', `${last.tool.name} did not answer ${this.effect.tool.name} at step ${this.effect.step}: ${message}`);
    return this.#settled('failed', `${last.tool.name} was ${last.known?.status ?? 'failed'}: ${message}`);
  }

  /** How much is still to be answered in this plan; null where the contract names no amount. */
  #rest(known: Known): number | null {
    return wantedOf(this.plan, this.effect, this.#item, known);
  }

  /** `before`: what failed, and is tried again under its own key. */
  #begin(how: CompensationContract, known: Known, before: Ordered | null): PlanEvent | null {
    const part = before?.part ?? Math.max(0, ...this.#item.parts.keys()) + 1;
    if (this.#item.args?.part !== part) return this.#arguments(how, known, part, before);
    return this.#authorised(how) ?? (this.#approved() ? this.#order(how, part, before) : this.#rejected());
  }

  #arguments(how: CompensationContract, known: Known, part: number, before: Ordered | null): PlanEvent | null {
    const { effect, looking } = this;
    const item = this.#item;
    const amount = before?.amount ?? this.#rest(known);
    if (how.partial !== undefined && amount === null) return this.#hopeless(`the effect has no amount at ${how.partial.amount.at} that is a whole number`);
    if (amount === 0) return this.#settled('compensated', 'all of it was answered before');
    if (how.args !== 'host') {
      const material = { args: effect.args, result: known.result, key: effect.key };
      const made = declared(how.args, material);
      const whole = made.ok ? completed(how, made.args, material, amount) : made;
      return whole.ok ? ArgumentsKnown({ ...this.#of, part, args: whole.args, digest: digestOf(whole.args), by: 'contract', ...(amount === null ? {} : { amount }) }) : this.#hopeless(whole.message);
    }
    if (known.result !== null && !('value' in known.result)) return this.#hopeless('what the effect came to is not kept in its event, so its compensation can’t be computed');
    if (item.answerBy !== null) return looking.at < item.answerBy ? null : ArgumentsMissing({ ...this.#of, ask: item.asks, message: 'no answer by the time it was due', nextAskAt: looking.at + this.#pause(item.asks) });
    if (item.asks >= ASKS_BEFORE_PEOPLE && !item.escalated.has('arguments')) return this.#escalated('arguments', `no worker says how ${effect.tool.name} at step ${effect.step} is answered`);
    if (item.nextAskAt !== null && looking.at < item.nextAskAt) return null;
    if (looking.contract(effect.tool) === null) return this.#noHost(effect.tool.name);
    return ArgumentsAsked({ ...this.#of, ask: item.asks + 1, answerBy: looking.at + ANSWER_WITHIN_MS });
  }

  #hopeless(message: string): PlanEvent {
    return this.#item.escalated.has('arguments') ? this.#settled('failed', message) : this.#escalated('arguments', message);
  }

  /** Exactly these arguments are shown to whoever must approve them. A tool that needs an approval when it is called needs one here as well. */
  #authorised(how: CompensationContract): PlanEvent | null {
    const { args, approval } = this.#item;
    const approvers = this.#approvers(how);
    if (args === null || approvers === null || approval !== null) return null;
    return CompensationApprovalAsked({ ...this.#of, approvers, tool: how.tool, args: args.value, digest: args.digest });
  }

  #approvers = (how: CompensationContract): string[] | null => approversOf(how, this.looking);

  #approved(): boolean {
    return this.#item.approval === null || this.#item.approval.status === 'approved';
  }

  #rejected(): PlanEvent | null {
    const { approval } = this.#item;
    return approval?.status === 'rejected' ? this.#settled('stands', `${approval.by} has decided that it stands${approval.reason === '' ? '' : `: ${approval.reason}`}`) : null;
  }

  #order(how: CompensationContract, part: number, before: Ordered | null): PlanEvent | null {
    const { effect, run, plan, looking } = this;
    const { args, approval } = this.#item;
    if (args === null) return null;
    for (const blocker of blockers(meant(run, plan)).get(effect.step) ?? []) {
      const settled = run.items.get(blocker)?.settled ?? null;
      if (settled === null) return null;
      if (settled.standing === 'failed') return this.#settled('failed', `not tried: step ${blocker} (${settled.tool.name}) has to be answered first, and that failed`);
    }
    const contract = looking.contract(how.tool);
    if (contract === null) return this.#noHost(how.tool.name);
    const over = run.ending !== null || plan.causes.some(({ kind }) => kind === 'deadline');
    return CompensationOrdered({
      ...this.#of,
      step: compensationStep(effect.step, part),
      part,
      key: operationKey({ scope: 'compensation', effect: effect.key, part }),
      tool: how.tool,
      effect: contract.effect,
      args: args.value,
      digest: args.digest,
      fence: over ? run.fence + 1 : run.fence,
      after: before?.known?.attempt ?? 0,
      authorisedBy: approval?.status === 'approved' ? approval.by : `the contract of ${effect.tool.name}@${effect.tool.version}`,
      because: before === null ? 'its turn has come' : `attempt ${before.known?.attempt ?? 0} was ${before.known?.status ?? 'failed'}, and it is taken up again`,
    });
  }

  #verify(part: Ordered): PlanEvent | null {
    const { verification, step } = part;
    const { at } = this.looking;
    const probe = verification.asked.size;
    if (verification.answerBy !== null) return at < verification.answerBy ? null : VerificationConcluded({ ...this.#of, step, probe, answer: { status: 'no_answer' }, nextLookAt: at + this.#pause(probe) });
    if (probe >= LOOKS_MAX && verification.lastAnswer === 'not_applied') {
      const message = `${part.tool.name} said that it was done, and after ${probe} looks nothing of it is found at its target`;
      return this.#item.escalated.has('not_found') ? this.#settled('failed', message) : this.#escalated('not_found', message);
    }
    if (verification.nextLookAt !== null && at < verification.nextLookAt) return null;
    return VerificationAsked({ ...this.#of, step, attempt: part.known?.attempt ?? 1, probe: probe + 1, issuedAt: at, answerBy: at + ANSWER_WITHIN_MS });
  }

  #pause(times: number): number {
    return Math.round(Math.min(ASK_AGAIN.maxMs, ASK_AGAIN.initialMs * 2 ** Math.min(20, times - 1)) * (0.5 + this.looking.jitter / 2));
  }

  #escalated(reason: Parameters<typeof CompensationEscalated>[0]['reason'], message: string): PlanEvent {
    return CompensationEscalated({ ...this.#of, to: this.effect.how?.escalateTo ?? null, reason, message: message.slice(0, 2000) });
  }

  #noHost(tool: string): PlanEvent | null {
    const told = this.#item.escalated.has('no_host') || this.looking.at < this.plan.openedAt + NO_HOST_AFTER_MS;
    return told ? null : this.#escalated('no_host', `no worker has declared ${tool}: start one that serves it`);
  }

  #overdue(): PlanEvent | null {
    const { how, step, tool } = this.effect;
    if (how === null || this.#item.escalated.has('overdue') || this.looking.at < this.plan.openedAt + how.deadlineMs) return null;
    return this.#escalated('overdue', `${tool.name} at step ${step} is not answered ${how.deadlineMs} ms after its plan was opened`);
  }
}

/** Roles of which whoever approves must have one; null: no approval is needed. */
export function approversOf(how: CompensationContract, { contract }: Pick<Looking, 'contract'>): string[] | null {
  if (how.authority !== 'automatic') return how.authority.approvers;
  const approval = contract(how.tool)?.approval;
  return approval === undefined ? null : approval.approvers;
}
