import { Injectable } from '@nestjs/common';
import { unreachable } from '@holdfast/kernel';
import {
  ProbeEffect,
  RunId,
  toolTasks,
  type AssignCase,
  type EffectOutcomeUnknown,
  type MessageOf,
  type Named,
  type ProbeReported,
  type ResolveCase,
  type Step,
  type ToolContract,
} from '@holdfast/protocol';
import { SchemaChecker, type ContractBook, type Inbound, type Turn, type Unreadable } from '@holdfast/runtime';
import type { CaseEvent, RunCases } from './domain/case.js';
import type { CaseCommand, Looking } from './domain/commands.js';
import { askedBefore, decide } from './domain/decide.js';
import { DEFAULT_PROBE_TIMEOUT_MS } from './domain/schedule.js';

type Data<M> = MessageOf<M> extends { data: infer D } ? D : never;
type In<M> = Inbound<Data<M>>;
type CaseTurn = Turn<RunCases, CaseEvent>;

/** Turns messages into commands, has the decider decide, and sends the probes that it wants. */
@Injectable()
export class CaseHandlers {
  readonly #contracts: ContractBook;
  readonly #results: SchemaChecker;

  constructor(contracts: ContractBook, results = new SchemaChecker('output')) {
    this.#contracts = contracts;
    this.#results = results;
  }

  async prepare(inbounds: readonly Inbound[]): Promise<void> {
    for (const { data } of inbounds) {
      const about = typeof data === 'object' && data !== null && 'about' in data ? (data.about as { tool: Named } | undefined) : undefined;
      if (about !== undefined && this.#contracts.tool(about.tool) === undefined) return this.#contracts.catchUp();
    }
  }

  unknown = ({ data, envelope }: In<typeof EffectOutcomeUnknown>, turn: CaseTurn): void => {
    const { about } = data;
    if (about === undefined) return turn.count('ignored', 'nothing_known');
    this.#apply(envelope.subject, envelope.tenant, turn, { type: 'open', of: envelope.version ?? 0, unknown: { ...data, about }, ...this.#looking(turn, about.tool) });
  };

  /** The effect has an end. Where a case brought it about, that case is settled already. */
  ended =
    (outcome: 'succeeded' | 'rejected' | 'failed') =>
    ({ data, envelope }: Inbound<{ step: Step; reconciled?: unknown }>, turn: CaseTurn): void => {
      const known = turn.state(envelope.subject).cases.get(data.step);
      if (known === undefined || data.reconciled !== undefined) return;
      // Read again after a restore, it is about an attempt before the one that the case is about.
      if ((envelope.version ?? 0) <= known.of) return turn.count('ignored', 'opened_before');
      this.#apply(envelope.subject, envelope.tenant, turn, { type: 'ended', step: data.step, outcome, ...this.#looking(turn, known.tool) });
    };

  answered = ({ data, envelope }: In<typeof ProbeReported>, turn: CaseTurn): void => {
    const { step, key, attempt, probe, issuedAt, answer, purpose } = data;
    if (purpose !== undefined) return; // The compensation service asked.
    const { subject, tenant } = envelope;
    if (!RunId.safeParse(subject).success) return turn.park('invalid_id', 'the record’s key is not a run id');
    const known = turn.state(subject).cases.get(step);
    if (known === undefined || turn.tenantOf(subject) !== tenant) return turn.park('case_unknown', `run ${subject} has no case at step ${step}`);
    if (known.key !== key) return turn.park('key_mismatch', `step ${step} of run ${subject} has operation key ${known.key}, the answer names ${key}`);
    this.#apply(subject, tenant, turn, { type: 'answered', step, attempt, probe, issuedAt, answer, ...this.#looking(turn, known.tool) });
  };

  resolve = ({ data, envelope }: In<typeof ResolveCase>, turn: CaseTurn): void => {
    const known = this.#known(data.step, envelope, turn);
    if (known === undefined) return;
    const looking = this.#looking(turn, known.tool);
    const resultProblem = data.verdict.status !== 'applied' || looking.contract === null ? null : this.#results.problem(looking.contract, data.verdict.result);
    this.#apply(envelope.subject, envelope.tenant, turn, { type: 'resolve', asked: data, resultProblem, ...looking });
  };

  assign = ({ data, envelope }: In<typeof AssignCase>, turn: CaseTurn): void => {
    const known = this.#known(data.step, envelope, turn);
    if (known !== undefined) this.#apply(envelope.subject, envelope.tenant, turn, { type: 'assign', asked: data, ...this.#looking(turn, known.tool) });
  };

  due = (run: string, turn: CaseTurn): void => {
    for (const { step, tool, status } of turn.state(run).cases.values()) {
      if (status === 'open') this.#apply(run, turn.tenantOf(run), turn, { type: 'due', step, ...this.#looking(turn, tool) });
    }
  };

  /** A question of this service, read back while its journal is rebuilt: its number must not be given out again. */
  sent = ({ data, envelope }: In<typeof ProbeEffect>, turn: CaseTurn): void => {
    if (data.purpose !== undefined) return;
    const event = askedBefore(data, turn.state(envelope.subject).cases.get(data.step), envelope.time);
    if (event !== null) turn.record(envelope.subject, envelope.tenant, event);
  };

  unreadable = ({ reason, message }: Unreadable, turn: CaseTurn): void => turn.park(reason, message);

  poison = (_stream: string, _tenant: string, error: Error, turn: CaseTurn): void => turn.park('poison', `${error.name}: ${error.message}`);

  /** A command about a run that has no case at that step can be told to nobody but whoever reads the dead letters. */
  #known(step: Step, { subject, tenant }: Inbound['envelope'], turn: CaseTurn): { tool: Named } | undefined {
    const known = RunId.safeParse(subject).success ? turn.state(subject).cases.get(step) : undefined;
    if (known !== undefined && turn.tenantOf(subject) === tenant) return known;
    turn.park('case_unknown', `run ${subject} has no case at step ${step}`);
    return undefined;
  }

  #looking(turn: CaseTurn, tool: Named): Looking {
    return { at: turn.now, contract: this.#contracts.tool(tool) ?? null, jitter: turn.random() };
  }

  #apply(run: string, tenant: string, turn: CaseTurn, command: CaseCommand): void {
    const decision = decide(command, turn.state(run));
    switch (decision.kind) {
      case 'ignore':
        return turn.count('ignored', decision.because);
      case 'refuse':
        return unreachable(decision.because);
      case 'record':
        for (const event of decision.events) {
          turn.record(run, tenant, event);
          if (event.type === 'ProbeSent' && command.contract !== null) this.#ask(run, tenant, turn, event.data, command.contract);
        }
        return;
      default:
        return unreachable(decision);
    }
  }

  #ask(run: string, tenant: string, turn: CaseTurn, { step, probe, issuedAt, answerBy }: { step: Step; probe: number; issuedAt: number; answerBy: number }, contract: ToolContract): void {
    const known = turn.state(run).cases.get(step);
    if (known === undefined) return;
    const { key, tool, attempt, fence, args, operationId } = known;
    const timeoutMs = contract.probe?.timeoutMs ?? DEFAULT_PROBE_TIMEOUT_MS;
    turn.send(toolTasks(contract.pool), run, tenant, ProbeEffect({ step, key, tool, attempt, fence, args, probe, issuedAt, answerBy, timeoutMs, ...(operationId === undefined ? {} : { operationId }) }));
  }
}
