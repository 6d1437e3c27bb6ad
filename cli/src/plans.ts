import { lacksHost, openPlan, preview, type Plan, type Preview, type RunPlans, evolve, noPlans, type PlanEvent } from '@holdfast/compensation/domain';
import { fold } from '@holdfast/kernel';
import { decoder, isoTime, planMessages, topics, type CompensateRun, type Json, type MessageOf, type Step } from '@holdfast/protocol';
import { openContractBook } from '@holdfast/runtime';
import { partitionEnds, tail } from '@holdfast/runtime/kafka';
import { readStreams, type TopicStream } from './audit/read-events.js';
import { CliError } from './failure.js';

const decode = decoder(planMessages);

/** One run's plans as commands show them. Times are RFC 3339. */
export interface PlanView {
  readonly run: string;
  readonly tenant: string;
  readonly plan: number;
  readonly status: Plan['status'];
  readonly since: string;
  readonly causes: readonly string[];
  readonly effects: readonly ItemView[];
}

/** One effect as its plan stands. */
export interface ItemView {
  readonly step: string;
  readonly tool: string;
  /** What is being waited for, or how it stands in the end. */
  readonly stands: string;
  readonly why: string;
  readonly with: string | null;
  readonly args: Json;
  /** Of the arguments: what an approval is for. */
  readonly digest: string | null;
  readonly approvers: readonly string[];
  readonly escalated: readonly string[];
  readonly answers: Json;
}

const eventsOf = ({ events }: TopicStream): PlanEvent[] =>
  events.flatMap(({ envelope, data }) => {
    const decoded = decode(envelope.type, data);
    return decoded.ok ? [decoded.message] : [];
  });

export interface FoundPlans {
  readonly run: string;
  readonly tenant: string;
  readonly state: RunPlans;
  readonly events: readonly PlanEvent[];
}

/** Every run with something registered, or one, from the topic alone. */
export async function readPlans(brokers: readonly string[], run?: string): Promise<FoundPlans[]> {
  const streams = await readStreams(brokers, topics.compensationEvents, run);
  return [...streams.values()].map((stream) => {
    const events = eventsOf(stream);
    return { run: stream.stream, tenant: stream.events[0]?.envelope.tenant ?? 'default', state: fold(evolve, noPlans, events), events };
  });
}

/** The latest plan of each run that has one. */
export function viewsOf({ run, tenant, state, events }: FoundPlans): PlanView[] {
  const plan = state.plans.at(-1);
  if (plan === undefined) return [];
  const causes = plan.causes.map((cause) => `${cause.kind.replaceAll('_', ' ')}: ${cause.message}`);
  const effects = [...state.effects.keys()].flatMap((step) => itemOf(state, events, step));
  return [{ run, tenant, plan: plan.number, status: plan.status, since: isoTime(plan.openedAt), causes, effects }];
}

function itemOf(state: RunPlans, events: readonly PlanEvent[], step: Step): ItemView[] {
  const effect = state.effects.get(step);
  const item = state.items.get(step);
  if (effect === undefined) return [];
  const asked = events.findLast((event) => event.type === 'CompensationApprovalAsked' && event.data.of === step);
  const waits = item?.approval?.status === 'asked' && openPlan(state) !== null;
  return [
    {
      step,
      tool: `${effect.tool.name}@${effect.tool.version}`,
      stands: item?.settled?.standing ?? waitingFor(state, step),
      why: item?.settled?.why ?? '',
      with: effect.how === null ? null : `${effect.how.tool.name}@${effect.how.tool.version}`,
      args: item?.args?.value ?? null,
      digest: item?.args?.digest ?? null,
      approvers: waits && asked?.type === 'CompensationApprovalAsked' ? asked.data.approvers : [],
      escalated: [...(item?.escalated ?? [])],
      answers: (item?.settled?.answers ?? null) as Json,
    },
  ];
}

function waitingFor(state: RunPlans, step: Step): string {
  const item = state.items.get(step);
  const known = state.known.get(step)?.status;
  if (openPlan(state) === null) return known ?? 'under way';
  if (known === undefined || known === 'unknown') return 'waits until it is settled';
  const last = [...(item?.parts.values() ?? [])].at(-1);
  if (last !== undefined && last.known === null) return 'is being answered';
  if (last?.known?.status === 'unknown') return 'its compensation is in a case';
  if (last?.known?.status === 'succeeded') return 'is being verified';
  if (item?.approval?.status === 'asked') return 'waits for an approval';
  return item?.args === undefined || item.args === null ? 'waits for its arguments' : 'waits for its turn';
}

/** What `compensate` would lead to, with the contracts that are declared now. */
export async function previewOf(brokers: readonly string[], { state }: FoundPlans, asked: MessageOf<typeof CompensateRun>['data'], at: number): Promise<Preview & { readonly lacksHost: boolean }> {
  const book = await openContractBook({
    open: (onRecord) => tail({ brokers, topics: [topics.contracts], from: 'beginning', onRecord }),
    ends: () => partitionEnds(brokers, topics.contracts),
  });
  try {
    const contract = (tool: Parameters<typeof book.tool>[0]) => book.tool(tool) ?? null;
    return { ...preview(state, asked, { at, jitter: 0, contract }), lacksHost: lacksHost(state, { contract }) };
  } finally {
    await book.close();
  }
}

export async function findPlans(brokers: readonly string[], run: string): Promise<FoundPlans> {
  const [found] = await readPlans(brokers, run);
  if (found === undefined) throw new CliError(`run ${run} has done nothing whose contract names a compensation`);
  return found;
}
