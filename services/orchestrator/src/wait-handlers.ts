import { Injectable } from '@nestjs/common';
import {
  brakeStream,
  digestOf,
  digestOfText,
  material,
  RunId,
  Tenant,
  type AbandonWait,
  type CancelRun,
  type DecideApproval,
  type DeliverCallback,
  type ForkRun,
  type MessageOf,
  type Named,
  type PauseRun,
  type PlanConcluded,
  type PlanOpened,
  type ReleaseBrake,
  type ReleaseRun,
  type ReportChild,
  type SetBrake,
  type SignalRun,
  type StartWait,
  type UnpauseRun,
  type UnquarantineRun,
  type Wait,
} from '@holdfast/protocol';
import { SchemaChecker, type ContractBook, type Inbound, type Turn } from '@holdfast/runtime';
import { notCompensable } from './domain/answering.js';
import type { RunCommand } from './domain/commands.js';
import { openWaits, type Run, type RunEvent } from './domain/run.js';
import { isRun, type RunHandlers } from './handlers.js';
import { historyStep } from './domain/history.js';
import { tellHeldTools } from './lanes.js';

type Data<M> = MessageOf<M> extends { data: infer D } ? D : never;
type In<M> = Inbound<Data<M>>;
type RunTurn = Turn<Run, RunEvent>;

/** What runs wait for, and what people and programs send to them. */
@Injectable()
export class WaitHandlers {
  readonly #runs: RunHandlers;
  readonly #contracts: ContractBook;
  readonly #schemas: SchemaChecker;

  constructor(runs: RunHandlers, contracts: ContractBook, schemas = new SchemaChecker('input')) {
    this.#runs = runs;
    this.#contracts = contracts;
    this.#schemas = schemas;
  }

  startWait = (inbound: In<typeof StartWait>, turn: RunTurn): void => {
    const { data, envelope } = inbound;
    const { wait } = data;
    const run = turn.state(envelope.subject);
    const kept = wait.kind === 'signal' && isRun(run) ? run.signals.filter(({ name }) => name === wait.name) : [];
    const fitting = new Set(kept.filter(({ payload }) => this.#problem(wait, payload) === null).map(({ signal }) => signal));
    this.#runs.intent(inbound, turn, () => ({ type: 'wait', at: turn.now, data, scopeProblem: this.#scopeProblem(wait, run), fitting }));
  };

  release = (inbound: In<typeof ReleaseRun>, turn: RunTurn): void => {
    this.#runs.intent(inbound, turn, () => ({ type: 'let_go', at: turn.now, data: inbound.data }));
  };

  abandon = (inbound: In<typeof AbandonWait>, turn: RunTurn): void => {
    this.#runs.intent(inbound, turn, () => ({ type: 'abandon', at: turn.now, data: inbound.data }));
  };

  signal = (inbound: In<typeof SignalRun>, turn: RunTurn): void => {
    const { data } = inbound;
    this.#outsider(inbound, turn, (run) => ({
      type: 'signal',
      at: turn.now,
      data,
      problems: new Map(openWaits(run).flatMap(({ step, wait }) => (wait.kind === 'signal' && wait.name === data.name ? [[step, this.#problem(wait, data.payload)] as const] : []))),
    }));
  };

  callback = (inbound: In<typeof DeliverCallback>, turn: RunTurn): void => {
    const { data } = inbound;
    this.#outsider(inbound, turn, (run) => {
      const state = run.steps.get(data.step);
      const tokenHash = digestOfText(data.token);
      const problem = state?.kind === 'wait' ? this.#problem(state.wait, data.payload) : null;
      // The token itself is a secret, and stands nowhere.
      return { type: 'callback', at: turn.now, data: { ...data, token: '' }, id: `callback:${data.step}:${tokenHash.slice(0, 16)}:${digestOf(data.payload).slice(0, 16)}`, tokenHash, problem };
    });
  };

  child = (inbound: In<typeof ReportChild>, turn: RunTurn): void => {
    this.#outsider(inbound, turn, () => ({ type: 'child', at: turn.now, data: inbound.data }));
  };

  planOpened = ({ data, envelope }: In<typeof PlanOpened>, turn: RunTurn): void => this.#runs.apply(envelope.subject, envelope.tenant, turn, { type: 'compensating', at: turn.now, plan: data.plan, because: data.cause.message });
  planConcluded = ({ data, envelope }: In<typeof PlanConcluded>, turn: RunTurn): void => this.#runs.apply(envelope.subject, envelope.tenant, turn, { type: 'compensated', at: turn.now, concluded: data });

  approve = (inbound: In<typeof DecideApproval>, turn: RunTurn): void => this.#outsider(inbound, turn, () => ({ type: 'approve', at: turn.now, asked: inbound.data }));
  cancel = (inbound: In<typeof CancelRun>, turn: RunTurn): void => this.#outsider(inbound, turn, () => ({ type: 'cancel', at: turn.now, asked: inbound.data }));
  pause = (inbound: In<typeof PauseRun>, turn: RunTurn): void => this.#outsider(inbound, turn, () => ({ type: 'pause', at: turn.now, asked: inbound.data }));
  unpause = (inbound: In<typeof UnpauseRun>, turn: RunTurn): void => this.#outsider(inbound, turn, () => ({ type: 'unpause', at: turn.now, asked: inbound.data }));
  /** A brake on more than a run. What it holds is looked at in the turns to come, and before anything is taken for it. */
  setBrake = (inbound: In<typeof SetBrake>, turn: RunTurn): void => this.#brake(inbound, turn, { type: 'set_brake', at: turn.now, asked: inbound.data });
  releaseBrake = (inbound: In<typeof ReleaseBrake>, turn: RunTurn): void => this.#brake(inbound, turn, { type: 'release_brake', at: turn.now, asked: inbound.data });

  #brake({ envelope, data }: In<typeof ReleaseBrake>, turn: RunTurn, command: RunCommand): void {
    const stream = brakeStream(turn.lane);
    if (envelope.subject !== stream) return turn.park('wrong_partition', `a brake is written to every lane, here under the key ${stream}`);
    const before = turn.state(stream);
    this.#runs.apply(stream, envelope.tenant, turn, command);
    const after = turn.state(stream);
    if (before.status === 'brakes' && after.status === 'brakes' && before.set.size === after.set.size) return;
    if (data.target.kind === 'tool') return tellHeldTools(turn);
    for (const run of turn.open()) if (!run.startsWith('~')) turn.wake(run, turn.now);
  }

  fork = (inbound: In<typeof ForkRun>, turn: RunTurn): void =>
    this.#outsider(inbound, turn, () => ({ type: 'fork', at: turn.now, asked: inbound.data, bytesOf: (step) => Buffer.byteLength(JSON.stringify(historyStep(step))) }));

  unquarantine = (inbound: In<typeof UnquarantineRun>, turn: RunTurn): void => this.#outsider(inbound, turn, () => ({ type: 'unquarantine', at: turn.now, asked: inbound.data }));

  /** Something about a run from whoever doesn't hold it. What concerns no run can be told to nobody but whoever reads the dead letters. */
  #outsider(inbound: Inbound, turn: RunTurn, command: (run: Extract<Run, { tenant: Tenant }>) => RunCommand): void {
    const { subject, tenant } = inbound.envelope;
    const run = RunId.safeParse(subject).success ? turn.state(subject) : undefined;
    if (run === undefined || !isRun(run) || run.tenant !== tenant) return turn.park('run_unknown', `no run ${subject} for this tenant: it has to be started first`);
    this.#runs.brake(subject, turn);
    this.#runs.apply(subject, tenant, turn, command(run));
  }

  #problem(wait: Wait, payload: Data<typeof SignalRun>['payload']): string | null {
    return (wait.kind === 'signal' || wait.kind === 'callback') && wait.schema !== undefined ? this.#schemas.problemOf(wait.schema, payload) : null;
  }

  /** Whether an approval is asked for what a call of these arguments will be, and whether what is to be answered can be. */
  #scopeProblem(wait: Wait, run: Run): string | null {
    if (wait.kind === 'compensation') return isRun(run) ? notCompensable(run, wait.scope, ({ call }) => this.#contracts.tool(call.tool) ?? null) : null;
    if (wait.kind !== 'approval') return null;
    const { tool, args, digest } = wait.scope;
    const contract = this.#contracts.tool(tool as Named);
    if (contract === undefined) return `no worker has declared tool ${tool.name}@${tool.version}: nothing of it can be approved`;
    const problem = this.#schemas.problem(contract, args);
    if (problem !== null) return `arguments of ${tool.name}@${tool.version}: ${problem}`;
    if (digestOf(material(contract, args)) !== digest) return 'the digest of the scope is not the one of its arguments';
    const asked = contract.approval?.approvers;
    return asked !== undefined && !wait.approvers.every((role) => asked.includes(role)) ? `tool ${tool.name} is approved by ${asked.join(', ')}, not by ${wait.approvers.join(', ')}` : null;
  }
}
