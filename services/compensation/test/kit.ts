import { specification } from '@holdfast/kernel';
import { CompensationContract, digestOf, OperationKey, Pool, Step, ToolContract, type CompensateRun, type DecideCompensation, type Evidence, type Json, type MessageOf, type Named, type Operator, type PlanScope, type Stored } from '@holdfast/protocol';
import type { Command, Looking, PlanCommand, PlanDecision } from '../src/domain/commands.js';
import { planDecider } from '../src/domain/decide.js';
import { evolve, noPlans, type PlanEvent, type Registered, type RunPlans } from '../src/domain/plan.js';

export const given = specification(planDecider).given;
export const now = 1_000_000;
export const receipt: Evidence = { kind: 'receipt', at: now };

type ContractOver = Partial<Omit<ToolContract, 'name' | 'version'>> & { readonly approval?: { approvers: string[]; fourEyes: boolean } };

export const contract = (name: string, over: ContractOver = {}): ToolContract =>
  ({
    ...ToolContract.parse({
      name,
      version: '1',
      pool: Pool.parse('trip'),
      effect: 'irreversible',
      keyScope: 'run',
      input: {},
      output: {},
      retry: { attemptsMax: 3, initialMs: 100, maxMs: 1000, factor: 2 },
      timeoutMs: 500,
      queueMs: 1000,
      settleDelayMs: 0,
      probe: null,
      owner: 'the desk',
    }),
    ...over,
  }) as ToolContract;

export const how = (over: Partial<CompensationContract> = {}): CompensationContract =>
  CompensationContract.parse({ tool: { name: 'cancel', version: '1' }, args: { booking: { from: 'result', at: '/id' } }, order: 'reverse', authority: 'automatic', deadlineMs: 60_000, escalateTo: 'the desk', verify: false, ...over });

const PROBE = { sealing: false, timeoutMs: 100 };
export const CONTRACTS: Readonly<Record<string, ToolContract>> = {
  cancel: contract('cancel'),
  checked: contract('checked', { probe: PROBE }),
  guarded: contract('guarded', { approval: { approvers: ['manager'], fourEyes: false } }),
};

export const looking = (at = now, known: Readonly<Record<string, ToolContract>> = CONTRACTS): Looking => ({ at, jitter: 1, contract: ({ name }: Named) => known[name] ?? (name.startsWith('book') ? contract(name) : null) });

export const keyOf = (n: string): OperationKey => OperationKey.parse(n.replace(/\D/g, '').padStart(64, '0'));
export const step = (text: string): Step => Step.parse(text);

export const effect = (at: string, over: Partial<Registered> = {}): Registered => {
  const args: Json = over.args ?? { n: at };
  return { step: step(at), key: keyOf(at), tool: { name: `book${at}`, version: '1' }, effect: 'irreversible', args, digest: digestOf(args), fire: 'granted', how: how(), pointOfNoReturn: false, ...over };
};

export const register = (at: string, over: Partial<Registered> = {}, when = now): PlanCommand => ({ type: 'register', effect: effect(at, over), fence: 3, ...looking(when) });

type NoteData = Command<'note'>['noted'];
export const note = (at: string, over: Partial<NoteData> = {}, when = now): PlanCommand => ({
  type: 'note',
  noted: { step: at as Step, status: 'succeeded', attempt: 1, version: 2, ...((over.status ?? 'succeeded') === 'succeeded' ? { result: { value: { id: `b${at}` } } as Stored, evidence: receipt } : {}), ...over },
  ...looking(when),
});
export const noteAnswer = (at: string, over: Partial<NoteData> = {}, changedSince = false, when = now): PlanCommand => ({
  type: 'note_answer',
  noted: { step: at as Step, status: 'succeeded', attempt: 1, version: 2, ...((over.status ?? 'succeeded') === 'succeeded' ? { result: { value: { fee: 5 } } as Stored, evidence: receipt } : {}), ...over },
  changedSince,
  ...looking(when),
});
type EndData = Command<'ended'>['end'];
export const ended = (ending: EndData['ending'] = 'failed', others: EndData['others'] = [], when = now): PlanCommand => ({ type: 'ended', end: { ending, others }, message: `it is ${ending}`, ...looking(when) });
export const openFor = (scope: PlanScope, at = '9', when = now): PlanCommand => ({ type: 'open', cause: { kind: 'agent', step: step(at), message: 'the agent asked' }, scope, ...looking(when) });
export const due = (when: number, known: Readonly<Record<string, ToolContract>> = CONTRACTS): PlanCommand => ({ type: 'due', ...looking(when, known) });

export const someone = (...roles: string[]): Operator => ({ name: 'ada', roles });
export const compensate = (over: Partial<MessageOf<typeof CompensateRun>['data']> = {}, when = now): PlanCommand => ({ type: 'compensate', asked: { command: 'c1', by: someone('operator'), reason: 'the customer asked', ...over }, ...looking(when) });
export const decideOn = (at: string, over: Partial<MessageOf<typeof DecideCompensation>['data']> = {}, when = now): PlanCommand => ({ type: 'decide', asked: { command: 'd1', by: someone('manager'), step: step(at), decision: 'approve', ...over }, ...looking(when) });

type DataOf<Type extends PlanEvent['type']> = Extract<PlanEvent, { type: Type }>['data'];

/** A run's plans after commands, and what each led to. */
export class Told {
  state: RunPlans = noPlans;
  readonly events: PlanEvent[] = [];

  tell(...commands: PlanCommand[]): this {
    for (const command of commands) this.on(command);
    return this;
  }

  /** Events of the last command alone. */
  on(command: PlanCommand): PlanEvent[] {
    const decision: PlanDecision = planDecider.decide(command, this.state);
    const events = decision.kind === 'record' ? [...decision.events] : [];
    for (const event of events) this.state = evolve(this.state, event);
    this.events.push(...events);
    return events;
  }

  types(): string[] {
    return this.events.map(({ type }) => type);
  }

  ordered(): string[] {
    return this.events.flatMap((event) => (event.type === 'CompensationOrdered' ? [event.data.step] : []));
  }

  all<Type extends PlanEvent['type']>(type: Type): DataOf<Type>[] {
    return this.events.filter((event) => event.type === type).map((event) => event.data as unknown as DataOf<Type>);
  }

  get conclusion(): DataOf<'PlanConcluded'> | undefined {
    return this.all('PlanConcluded').at(-1);
  }

  standings(): Record<string, string> {
    return Object.fromEntries((this.conclusion?.effects ?? []).map(({ step: at, standing }) => [at, standing]));
  }
}

export const told = (...commands: PlanCommand[]): Told => new Told().tell(...commands);
