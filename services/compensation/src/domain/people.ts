import { CompensationDecided, PlanCommandRefused, type MessageOf, type Operator, type Step } from '@holdfast/protocol';
import { approversOf, openedFor } from './advance.js';
import type { Command } from './commands.js';
import { mayStand, wayBack } from './order.js';
import { openPlan, type PlanEvent, type RunPlans } from './plan.js';
import { answeredAmount, wholeOf } from './standing.js';

type RefuseReason = MessageOf<typeof PlanCommandRefused>['data']['reason'];
type One = readonly [PlanEvent, ...PlanEvent[]];

/** Role that may have a run compensated. Whoever is `admin` may everything. */
const OPERATOR_ROLE = 'operator';
const ADMIN_ROLE = 'admin';

const may = ({ roles }: Operator, allowed: readonly string[]): boolean => roles.some((role) => role === ADMIN_ROLE || allowed.includes(role));
const quoted = (roles: readonly string[]): string => (roles.length === 0 ? 'none' : roles.map((role) => `"${role}"`).join(' or '));

/** An operator has what a run did answered: all of it, or some effects, or so much of one. */
export function compensate({ asked, ...looking }: Command<'compensate'>, run: RunPlans): One {
  const { command, by, reason, steps, amount } = asked;
  const no = (because: RefuseReason, message: string, step?: Step): One => [PlanCommandRefused({ command, by, reason: because, message, ...(step === undefined ? {} : { step }) })];
  if (!may(by, [OPERATOR_ROLE])) return no('role_missing', `to compensate a run needs the role "${OPERATOR_ROLE}"; ${by.name} has ${quoted(by.roles)}`);
  if (run.effects.size === 0) return no('nothing_registered', 'the run has no effect whose contract names a compensation');
  if (run.ending === null) return no('run_open', 'the run is not over: cancel it first, or let it end');
  for (const step of steps ?? []) {
    const because = notAnswerable(run, step);
    if (because !== null) return no(because.reason, because.message, step);
  }
  if (steps === undefined && ![...run.effects.keys()].some((step) => notAnswerable(run, step) === null)) return no('nothing_to_do', 'nothing of the run is left that can be compensated');
  const [only] = steps ?? [];
  if (amount !== undefined) {
    if (only === undefined || steps?.length !== 1) return no('amount_exceeded', 'an amount needs one step that it is meant for');
    const rest = restOf(run, only);
    if (rest === null || amount > rest) return no('amount_exceeded', rest === null ? `the contract of step ${only} names no amount` : `${amount} is more than the ${rest} that are left of step ${only}`, only);
  }
  const scope = steps === undefined ? { kind: 'run' as const } : { kind: 'steps' as const, steps, ...(amount === undefined ? {} : { amount }) };
  return [openedFor(run, { kind: 'operator', by, command, message: reason }, scope, looking)];
}

/** Why an effect can't be answered, or need not be; null when it can. */
export function notAnswerable(run: RunPlans, step: Step): { readonly reason: RefuseReason; readonly message: string } | null {
  const effect = run.effects.get(step);
  if (effect === undefined) return run.ending?.others.some((other) => other.step === step) === true ? { reason: 'not_compensable', message: `the contract of step ${step} names no compensation: it stands` } : { reason: 'step_unknown', message: `step ${step} is no effect of this run` };
  const way = wayBack(run, step);
  if (way.is === 'closed') return { reason: 'no_return', message: `step ${way.at} is a point of no return: the run only goes forward from there` };
  if (effect.how === null) return { reason: 'not_compensable', message: `the contract of ${effect.tool.name} names no compensation` };
  if (!mayStand(run, step)) return { reason: 'nothing_to_do', message: `step ${step} never happened` };
  return run.items.get(step)?.settled?.standing === 'compensated' ? { reason: 'nothing_to_do', message: `step ${step} is compensated already` } : null;
}

/** How much of an effect is not answered, nor about to be; null where its contract names no amount. */
export function restOf(run: RunPlans, step: Step): number | null {
  const effect = run.effects.get(step);
  const whole = effect === undefined ? null : wholeOf(effect, run.known.get(step));
  if (whole === null) return null;
  const item = run.items.get(step);
  const open = openPlan(run);
  const promised = (open?.scopes ?? []).reduce((sum, scope) => sum + (scope.kind === 'steps' && scope.steps.includes(step) ? (scope.amount ?? 0) : 0), 0);
  const doneInPlan = item === undefined || open === null ? 0 : answeredAmount(item, open.number);
  return whole - (item === undefined ? 0 : answeredAmount(item)) - Math.max(0, promised - doneInPlan);
}

/** A person's word on exactly what would be called. */
export function decideCompensation({ asked, at, contract }: Command<'decide'>, run: RunPlans): One {
  const { command, by, step, decision, digest, reason } = asked;
  const no = (because: RefuseReason, message: string): One => [PlanCommandRefused({ command, by, step, reason: because, message })];
  const plan = openPlan(run);
  const item = run.items.get(step);
  const how = run.effects.get(step)?.how ?? null;
  if (plan === null || item === undefined || item.args === null || how === null || item.approval?.status !== 'asked') return no('not_asked', `step ${step} waits for no approval`);
  const approvers = approversOf(how, { contract }) ?? [];
  if (!may(by, approvers)) return no('role_missing', `this needs the role ${quoted(approvers)}; ${by.name} has ${quoted(by.roles)}`);
  if (digest !== undefined && digest !== item.args.digest) return no('other_arguments', 'what was decided on is not what would be called: look at it again');
  return [CompensationDecided({ plan: plan.number, of: step, decision: decision === 'approve' ? 'approved' : 'rejected', digest: item.args.digest, by, command, at, ...(reason === undefined ? {} : { reason }) })];
}
