import { Injectable } from '@nestjs/common';
import { unreachable } from '@holdfast/kernel';
import {
  answeredBy,
  AskArguments,
  ProbeEffect,
  RunId,
  toolTasks,
  type ArgumentsReported,
  type CompensateRun,
  type CompensationRequested,
  type DecideCompensation,
  type EffectConflicted,
  type EffectDispatched,
  type EffectFailed,
  type EffectHeld,
  type EffectNoted,
  type EffectOutcomeUnknown,
  type EffectRejected,
  type EffectRetryScheduled,
  type EffectRequested,
  type EffectSucceeded,
  type GroupRequested,
  type IntentRejected,
  type MessageOf,
  type Named,
  type ProbeReported,
  type RequestedCall,
  type RunFinished,
  type Step,
  type WaitStarted,
} from '@holdfast/protocol';
import type { ContractBook, Inbound, Turn, Unreadable } from '@holdfast/runtime';
import { lacksHost } from './domain/advance.js';
import type { Looking, PlanCommand } from './domain/commands.js';
import { decide } from './domain/decide.js';
import type { PlanEvent, Registered, RunPlans } from './domain/plan.js';

type Data<M> = MessageOf<M> extends { data: infer D } ? D : never;
type In<M> = Inbound<Data<M>>;
type PlanTurn = Turn<RunPlans, PlanEvent>;
type Noted = Data<typeof EffectNoted>;

/** How soon a plan is looked at again that waits for a tool which no worker has declared. Milliseconds. */
const HOST_AGAIN_MS = 5000;
/** Of what a host is asked: no shorter than a probe's own time-out may be. Milliseconds. */
const LOOK_TIMEOUT_MS = 10_000;

/** Turns messages into commands, has the decider decide, and asks the hosts what it wants to know. */
@Injectable()
export class PlanHandlers {
  readonly #contracts: ContractBook;

  constructor(contracts: ContractBook) {
    this.#contracts = contracts;
  }

  async prepare(inbounds: readonly Inbound[]): Promise<void> {
    for (const { data } of inbounds) for (const tool of toolsIn(data)) if (this.#contracts.tool(tool) === undefined) return this.#contracts.catchUp();
  }

  requested = ({ envelope, data }: In<typeof EffectRequested>, turn: PlanTurn): void => this.#register(envelope, data.call, data.fire, data.fence ?? 0, turn);

  group = ({ envelope, data }: In<typeof GroupRequested>, turn: PlanTurn): void => {
    for (const call of data.calls) this.#register(envelope, call, 'local', data.fence ?? 0, turn);
  };

  /** A local call that was refused may have fired all the same. */
  refused = ({ envelope, data }: In<typeof IntentRejected>, turn: PlanTurn): void => {
    for (const call of data.bound === undefined ? (data.boundGroup ?? []) : [data.bound]) this.#register(envelope, call, 'local', 0, turn);
  };

  /** The ledger may be heard before the orchestrator, also of what a worker fired by itself and wants tried again. */
  retried = ({ envelope, data }: In<typeof EffectRetryScheduled>, turn: PlanTurn): void => {
    const { step, key, local } = data;
    if (local?.args !== undefined && answeredBy(step) === null) this.#register(envelope, { ...local, step, key, args: local.args }, 'local', 0, turn, true);
  };

  dispatched = ({ envelope, data }: In<typeof EffectDispatched> | In<typeof EffectHeld>, turn: PlanTurn): void => {
    const { args, fence, ...call } = data;
    if (args !== undefined && answeredBy(call.step) === null) this.#register(envelope, { ...call, args }, 'granted', fence, turn, true);
  };

  succeeded = (inbound: In<typeof EffectSucceeded>, turn: PlanTurn): void => {
    const { result, evidence, replayed } = inbound.data;
    this.#note(inbound, turn, replayed === undefined ? { status: 'succeeded', result, evidence } : { status: 'not_ours', message: `the effect of run ${replayed.run} at step ${replayed.step} under the same key answered it` });
  };
  rejected = (inbound: In<typeof EffectRejected>, turn: PlanTurn): void => this.#note(inbound, turn, { status: 'rejected', message: inbound.data.reason, evidence: inbound.data.evidence });
  failed = (inbound: In<typeof EffectFailed>, turn: PlanTurn): void => {
    const { failure, evidence } = inbound.data;
    this.#note(inbound, turn, { status: 'failed', message: `${failure.class}: ${failure.message}`, evidence }, failure.class === 'concurrency_conflict');
  };
  unknown = (inbound: In<typeof EffectOutcomeUnknown>, turn: PlanTurn): void => this.#note(inbound, turn, { status: 'unknown', message: inbound.data.message });
  conflicted = (inbound: In<typeof EffectConflicted>, turn: PlanTurn): void => this.#note({ ...inbound, data: { ...inbound.data, attempt: 1 } }, turn, { status: 'failed', message: `its key is held by run ${inbound.data.owner.run}` });

  finished = ({ envelope, data }: In<typeof RunFinished>, turn: PlanTurn): void => {
    const { ending } = data;
    const others = data.effects.filter(({ step }) => !turn.state(envelope.subject).effects.has(step)).map(({ step, tool, key, outcome }) => ({ step, tool, key, outcome }));
    this.#apply(envelope.subject, envelope.tenant, turn, { type: 'ended', end: { ending: ending.status, others }, message: wordsOf(ending), ...this.#looking(turn) });
  };

  /** Its deadline said that it leads to this. The run's end follows in its stream. */
  deadline = ({ envelope, data }: In<typeof CompensationRequested>, turn: PlanTurn): void =>
    this.#apply(envelope.subject, envelope.tenant, turn, { type: 'open', cause: { kind: 'deadline', message: data.because.slice(0, 2000), ...(data.step === undefined ? {} : { step: data.step }) }, scope: { kind: 'run' }, ...this.#looking(turn) });

  /** The agent itself has what it did answered, and waits for it. */
  waits = ({ envelope, data }: In<typeof WaitStarted>, turn: PlanTurn): void => {
    const { step, wait } = data;
    if (wait.kind === 'compensation') this.#apply(envelope.subject, envelope.tenant, turn, { type: 'open', cause: { kind: 'agent', step, message: 'the agent asked for it' }, scope: wait.scope, ...this.#looking(turn) });
  };

  argued = ({ envelope, data }: In<typeof ArgumentsReported>, turn: PlanTurn): void => {
    const { step, key, ask, answer } = data;
    if (this.#known(envelope, turn)?.effects.get(step)?.key !== key) return turn.park('effect_unknown', `run ${envelope.subject} has no effect at step ${step} under key ${key} that may have to be answered`);
    this.#apply(envelope.subject, envelope.tenant, turn, { type: 'arguments', step, ask, answer, ...this.#looking(turn) });
  };

  verified = ({ envelope, data }: In<typeof ProbeReported>, turn: PlanTurn): void => {
    if (data.purpose !== 'verify') return; // A case's.
    const { step, key, attempt, probe, issuedAt, answer } = data;
    const answered = answeredBy(step);
    const part = answered === null ? undefined : this.#known(envelope, turn)?.items.get(answered.of)?.parts.get(answered.part);
    if (part?.key !== key) return turn.park('effect_unknown', `run ${envelope.subject} has no compensation ${step} under key ${key}`);
    this.#apply(envelope.subject, envelope.tenant, turn, { type: 'verified', step, attempt, probe, issuedAt, answer, ...this.#looking(turn) });
  };

  compensate = ({ envelope, data }: In<typeof CompensateRun>, turn: PlanTurn): void => {
    if (this.#known(envelope, turn) === undefined) return turn.park('run_unknown', `run ${envelope.subject} has no effect whose contract names a compensation`);
    this.#apply(envelope.subject, envelope.tenant, turn, { type: 'compensate', asked: data, ...this.#looking(turn) });
  };

  decideOn = ({ envelope, data }: In<typeof DecideCompensation>, turn: PlanTurn): void => {
    if (this.#known(envelope, turn) === undefined) return turn.park('run_unknown', `run ${envelope.subject} has no effect whose contract names a compensation`);
    this.#apply(envelope.subject, envelope.tenant, turn, { type: 'decide', asked: data, ...this.#looking(turn) });
  };

  due = (run: string, turn: PlanTurn): void => this.#apply(run, turn.tenantOf(run), turn, { type: 'due', ...this.#looking(turn) });

  unreadable = ({ reason, message }: Unreadable, turn: PlanTurn): void => turn.park(reason, message);

  poison = (_stream: string, _tenant: string, error: Error, turn: PlanTurn): void => turn.park('poison', `${error.name}: ${error.message}`);

  /** An outsider's message about a run of which nothing is known here, or of another tenant, is nobody's. */
  #known({ subject, tenant }: Inbound['envelope'], turn: PlanTurn): RunPlans | undefined {
    if (!RunId.safeParse(subject).success) return undefined;
    const run = turn.state(subject);
    return (run.effects.size > 0 || run.ending !== null) && turn.tenantOf(subject) === tenant ? run : undefined;
  }

  /** Known before it can fire: the intent is committed or acknowledged on the log, and says by its tool's version how it is answered. */
  #register({ subject, tenant }: Inbound['envelope'], call: Pick<RequestedCall, 'step' | 'key' | 'tool' | 'effect' | 'args' | 'digest'>, fire: Registered['fire'], fence: number, turn: PlanTurn, early = false): void {
    const contract = this.#contracts.tool(call.tool);
    if (contract === undefined || (contract.compensate === undefined && contract.pointOfNoReturn === undefined)) return;
    const { step, key, tool, effect, args, digest } = call;
    const registered: Registered = { step, key, tool, effect, args, digest, fire, how: contract.compensate ?? null, pointOfNoReturn: contract.pointOfNoReturn === true, early };
    this.#apply(subject, tenant, turn, { type: 'register', effect: registered, fence, ...this.#looking(turn) });
  }

  #note({ envelope, data }: Inbound<{ step: Step; attempt: number; local?: { tool: Named } | undefined; tool?: Named }>, turn: PlanTurn, said: Pick<Noted, 'status' | 'message' | 'result' | 'evidence'>, changedSince = false): void {
    const { subject, tenant, version = 0 } = envelope;
    const { step, attempt, tool = data.local?.tool } = data;
    const clipped = said.message === undefined ? said : { ...said, message: said.message.slice(0, 2000) };
    const noted: Noted = { step, attempt, version, ...clipped };
    if (answeredBy(step) !== null) return this.#apply(subject, tenant, turn, { type: 'note_answer', noted, changedSince, ...this.#looking(turn) });
    if (this.#concerns(turn.state(subject), step, tool, said.status)) this.#apply(subject, tenant, turn, { type: 'note', noted, ...this.#looking(turn) });
  }

  /** The ledger may be heard first: only its first word on an effect names the tool, and one that another run's effect answers does not even then. */
  #concerns({ effects, known }: RunPlans, step: Step, tool: Named | undefined, status: Noted['status']): boolean {
    if (effects.has(step) || known.has(step) || status === 'not_ours') return true;
    const contract = tool === undefined ? undefined : this.#contracts.tool(tool);
    return contract?.compensate !== undefined || contract?.pointOfNoReturn !== undefined;
  }

  #looking(turn: PlanTurn): Looking {
    return { at: turn.now, jitter: turn.random(), contract: (tool) => this.#contracts.tool(tool) ?? null };
  }

  #apply(run: string, tenant: string, turn: PlanTurn, command: PlanCommand): void {
    const decision = decide(command, turn.state(run));
    switch (decision.kind) {
      case 'ignore':
        turn.count('ignored', decision.because);
        break;
      case 'refuse':
        return unreachable(decision.because);
      case 'record':
        for (const event of decision.events) {
          turn.record(run, tenant, event);
          this.#ask(run, tenant, turn, event);
        }
        break;
      default:
        return unreachable(decision);
    }
    if (lacksHost(turn.state(run), command)) turn.wake(run, turn.now + HOST_AGAIN_MS);
  }

  /** What the decider wants to know from a host is sent with its event. */
  #ask(run: string, tenant: string, turn: PlanTurn, event: PlanEvent): void {
    const state = turn.state(run);
    if (event.type === 'ArgumentsAsked') {
      const { of, ask, answerBy } = event.data;
      const effect = state.effects.get(of);
      const result = state.known.get(of)?.result ?? null;
      const contract = effect === undefined ? undefined : this.#contracts.tool(effect.tool);
      if (effect === undefined || result === null || contract === undefined) return;
      turn.send(toolTasks(contract.pool), run, tenant, AskArguments({ step: of, key: effect.key, tool: effect.tool, args: effect.args, result, ask, answerBy }));
    }
    if (event.type === 'VerificationAsked') {
      const { of, step, attempt, probe, issuedAt, answerBy } = event.data;
      const part = [...(state.items.get(of)?.parts.values() ?? [])].find((each) => each.step === step);
      const contract = part === undefined ? undefined : this.#contracts.tool(part.tool);
      if (part === undefined || contract === undefined) return;
      const { key, tool, fence, args } = part;
      turn.send(toolTasks(contract.pool), run, tenant, ProbeEffect({ step, key, tool, attempt, fence, args, probe, issuedAt, answerBy, timeoutMs: contract.probe?.timeoutMs ?? LOOK_TIMEOUT_MS, purpose: 'verify' }));
    }
  }
}

function wordsOf(ending: Data<typeof RunFinished>['ending']): string {
  switch (ending.status) {
    case 'failed':
      return `${ending.failure.class}: ${ending.failure.message}`;
    default:
      return `the run is ${ending.status}`;
  }
}

/** Tools that a message names, whose contracts the handlers look at. */
function toolsIn(data: unknown): Named[] {
  if (typeof data !== 'object' || data === null) return [];
  const { call, calls, tool, local, bound, boundGroup } = data as Partial<Record<'call' | 'local' | 'bound', { tool: Named }> & Record<'calls' | 'boundGroup', { tool: Named }[]> & { tool: Named }>;
  return [...(calls ?? []), ...(boundGroup ?? []), ...[call, local, bound].flatMap((each) => (each === undefined ? [] : [each]))].map((each) => each.tool).concat(tool === undefined ? [] : [tool]);
}
