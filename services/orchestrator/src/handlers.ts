import { Injectable } from '@nestjs/common';
import { unreachable } from '@holdfast/kernel';
import {
  DEFAULT_POOL,
  DIGEST_VERSION,
  digestOf,
  IntentRefused,
  IntentRejected,
  LaneTaken,
  laneStream,
  material,
  operationKey,
  Pool,
  RejectReason,
  RunId,
  runTasks,
  StepsReported,
  Tenant,
  topics,
  type AnnounceLane,
  type CallGroup,
  type CallTool,
  type EffectConflicted,
  type EffectFailed,
  type EffectOutcomeUnknown,
  type EffectRejected,
  type EffectRetryScheduled,
  type EffectSucceeded,
  type Evidence,
  type FinishRun,
  type Json,
  type MessageOf,
  type Named,
  type Outcome,
  type RecordStep,
  type ReportDivergence,
  type ReportSteps,
  type ReportTry,
  type RunGranted,
  type StartRun,
} from '@holdfast/protocol';
import { SchemaChecker, type ContractBook, type Inbound, type Turn, type Unreadable } from '@holdfast/runtime';
import type { CallIdentity, Refusal, RunCommand } from './domain/commands.js';
import { decide } from './domain/decide.js';
import { grantedBefore } from './domain/granted-before.js';
import type { Run, RunEvent } from './domain/run.js';
import { dueAt } from './domain/waiting.js';
import { holderOf } from './lanes.js';
import { answerParent, tell, tellAgain, tellEnds } from './tell.js';

type Data<M> = MessageOf<M> extends { data: infer D } ? D : never;
type In<M> = Inbound<Data<M>>;
type RunTurn = Turn<Run, RunEvent>;

/** Recovered runs are granted over this long for each of them, so that a take-over is no stampede. Milliseconds. */
const GRANT_SPREAD_MS = 1;
const GRANT_SPREAD_MOST_MS = 5000;
/** A write under way is over by then; a group that has expired begins its generations at 1 again. Milliseconds. */
const GENERATIONS_COUNT_ON_MS = 10 * 60 * 1000;

/** Turns messages into commands, has the decider decide, and says it to stream, worker and asker. */
@Injectable()
export class RunHandlers {
  readonly #contracts: ContractBook;
  readonly #arguments: SchemaChecker;

  /** `checker`: one for many handlers saves compiling each tool's schema anew. */
  constructor(contracts: ContractBook, checker = new SchemaChecker('input')) {
    this.#contracts = contracts;
    this.#arguments = checker;
  }

  /** Reads contracts anew where an intent names one that isn't known yet: it was declared before the intent was sent. */
  async prepare(inbounds: readonly Inbound[]): Promise<void> {
    for (const { data } of inbounds) {
      const named = typeof data === 'object' && data !== null && 'tool' in data ? [data.tool as Named] : typeof data === 'object' && data !== null && 'calls' in data ? (data.calls as { tool: Named }[]).map(({ tool }) => tool) : [];
      if (named.some((tool) => this.#contracts.tool(tool) === undefined)) {
        await this.#contracts.catchUp();
        return;
      }
    }
  }

  start = (inbound: In<typeof StartRun>, turn: RunTurn): void => {
    const pool = inbound.data.pool ?? DEFAULT_POOL;
    const inputDigest = digestOf(inbound.data.input);
    answerParent(inbound.envelope.subject, inbound.envelope.tenant, turn, inbound.data.parent);
    this.intent(inbound, turn, (tenant) => ({ type: 'start', at: turn.now, tenant, data: inbound.data, inputDigest, holder: holderOf(turn, pool) }));
  };

  call = (inbound: In<typeof CallTool>, turn: RunTurn): void => {
    this.intent(inbound, turn, (tenant, run) => ({ type: 'call', at: turn.now, data: inbound.data, identity: this.#identity(tenant, run, inbound.data) }));
  };

  group = (inbound: In<typeof CallGroup>, turn: RunTurn): void => {
    this.intent(inbound, turn, (tenant, run) => ({ type: 'group', at: turn.now, data: inbound.data, identities: inbound.data.calls.map((call) => this.#identity(tenant, run, call)) }));
  };

  recordStep = (inbound: In<typeof RecordStep>, turn: RunTurn): void => {
    this.intent(inbound, turn, () => ({ type: 'record', at: turn.now, data: inbound.data }));
  };

  reportTry = (inbound: In<typeof ReportTry>, turn: RunTurn): void => {
    this.intent(inbound, turn, () => ({ type: 'try', at: turn.now, data: inbound.data, jitter: turn.random() }));
  };

  reportSteps = (inbound: In<typeof ReportSteps>, turn: RunTurn): void => {
    this.intent(inbound, turn, () => ({ type: 'report', at: turn.now, data: inbound.data }));
  };

  finish = (inbound: In<typeof FinishRun>, turn: RunTurn): void => {
    this.intent(inbound, turn, () => ({ type: 'finish', at: turn.now, data: inbound.data }));
  };

  diverged = (inbound: In<typeof ReportDivergence>, turn: RunTurn): void => {
    this.intent(inbound, turn, () => ({ type: 'diverged', at: turn.now, data: inbound.data }));
  };

  announceLane = ({ data, envelope, record }: In<typeof AnnounceLane>, turn: RunTurn): void => {
    const stream = laneStream(data.pool, turn.lane);
    if (data.lane !== turn.lane || envelope.subject !== stream) return turn.park('wrong_partition', `an announcement of lane ${data.lane} of pool ${data.pool} belongs on that partition, under the key ${stream}`);
    const before = turn.state(stream);
    if (before.status === 'lane' && record.offset <= before.offset) return turn.count('ignored', 'announced_before');
    const { pool, lane, worker, agents, taken, generation } = data;
    // A group that was away for long counts anew.
    if (before.status === 'lane' && generation !== undefined && turn.now - before.at < GENERATIONS_COUNT_ON_MS) {
      // A former holder's announcement whose write was repeated arrives behind its successor's.
      if (generation < (before.generation ?? 0)) return turn.count('ignored', 'announced_late');
      // One whose write was repeated though the first had arrived: what it has fired since is its own, not a former holder's.
      if (generation === before.generation && worker === before.worker) return turn.count('ignored', 'announced_again');
    }
    turn.record(stream, envelope.tenant, LaneTaken({ pool, lane, worker, agents, taken, offset: record.offset, at: turn.now, ...(generation === undefined ? {} : { generation }) }));
    const open = turn.open(pool);
    const spread = Math.min(GRANT_SPREAD_MOST_MS, open.length * GRANT_SPREAD_MS);
    for (const run of open) turn.wake(run, turn.now + Math.floor(turn.random() * spread));
  };

  succeeded = (inbound: In<typeof EffectSucceeded>, turn: RunTurn): void => {
    const { result, evidence } = inbound.data;
    this.#settled(inbound, turn, { status: 'succeeded', result, evidence });
  };

  rejected = (inbound: In<typeof EffectRejected>, turn: RunTurn): void => {
    const { reason, evidence } = inbound.data;
    this.#settled(inbound, turn, { status: 'rejected', reason, evidence });
  };

  failed = (inbound: In<typeof EffectFailed>, turn: RunTurn): void => {
    const { failure, evidence } = inbound.data;
    this.#settled(inbound, turn, { status: 'failed', failure, evidence });
  };

  conflicted = (inbound: In<typeof EffectConflicted>, turn: RunTurn): void => {
    const { step, owner } = inbound.data;
    const evidence: Evidence = { kind: 'ledger' };
    const failure = { class: 'concurrency_conflict' as const, message: `run ${owner.run} step ${owner.step} holds this operation key with other arguments; nothing fired`, notApplied: true };
    this.apply(inbound.envelope.subject, inbound.envelope.tenant, turn, { type: 'settle', at: turn.now, step, attempt: 1, outcome: { status: 'failed', failure, evidence } });
  };

  unknown = (inbound: In<typeof EffectOutcomeUnknown>, turn: RunTurn): void => {
    const { step, attempt, cause, message } = inbound.data;
    this.apply(inbound.envelope.subject, inbound.envelope.tenant, turn, { type: 'block', at: turn.now, step, attempt, cause, message });
  };

  retried = (inbound: In<typeof EffectRetryScheduled>, turn: RunTurn): void => {
    const { step, attempt, because } = inbound.data;
    this.apply(inbound.envelope.subject, inbound.envelope.tenant, turn, { type: 'release', at: turn.now, step, attempt, because });
  };

  /** A run's lane has a new holder, or something that it waits for is due. */
  due = (stream: string, turn: RunTurn): void => {
    const run = turn.state(stream);
    if (run.status !== 'open') return;
    if (dueAt(run) !== null) this.apply(stream, run.tenant, turn, { type: 'due', at: turn.now });
    this.#grant(stream, run.tenant, turn);
  };

  /** After a rebuild: what was sent may be lost with the old journal, so every run of the lane is granted anew, and says to other runs again what it has said. */
  reopen = (stream: string, turn: RunTurn): void => {
    const lane = turn.state(stream);
    if (lane.status !== 'lane') return tellAgain(stream, turn.tenantOf(stream), turn);
    const { worker, agents, offset, generation, at, rebuilt } = lane;
    const pool = Pool.parse(stream.split('/')[1]);
    turn.record(stream, turn.tenantOf(stream), LaneTaken({ pool, lane: turn.lane, worker, agents: [...agents], taken: {}, offset, at, rebuilt: rebuilt + 1, ...(generation === null ? {} : { generation }) }));
  };

  /** A grant of this orchestrator, read back while its journal is rebuilt. */
  sent = (inbound: In<typeof RunGranted>, turn: RunTurn): void => {
    const { subject, tenant } = inbound.envelope;
    const event = grantedBefore(inbound.data, turn.state(subject));
    if (event !== null) turn.record(subject, tenant, event);
  };

  unreadable = ({ record, envelope, reason, message }: Unreadable, turn: RunTurn): void => {
    turn.park(reason, message);
    if (envelope === undefined || record.topic !== topics.agentIntents || reason === 'key_mismatch' || reason === 'wrong_partition') return;
    const run = turn.state(envelope.subject);
    // A run belongs to one tenant: another's message says nothing in it.
    if (!isRun(run) || run.tenant !== envelope.tenant) return;
    const token = `${record.topic}/${record.lane}/${record.offset}`;
    this.apply(envelope.subject, envelope.tenant, turn, { type: 'unreadable', at: turn.now, intent: envelope.type, reason: rejectReason(reason), message, token });
  };

  poison = (stream: string, tenant: string, error: Error, turn: RunTurn): void => {
    const run = turn.state(stream);
    if (isRun(run) && run.status !== 'ended') this.apply(stream, tenant, turn, { type: 'poison', at: turn.now, message: `${error.name}: ${error.message}` });
    else turn.park('poison', `${error.name}: ${error.message}`);
  };

  /** An intent's border: ids are checked, and a run belongs to one tenant. */
  intent(inbound: Inbound, turn: RunTurn, command: (tenant: Tenant, run: RunId) => RunCommand): void {
    const { subject } = inbound.envelope;
    const run = RunId.safeParse(subject);
    const tenant = Tenant.safeParse(inbound.envelope.tenant);
    if (!run.success || !tenant.success) return turn.park('invalid_id', run.error?.issues[0]?.message ?? tenant.error?.issues[0]?.message ?? 'invalid id');
    const state = turn.state(subject);
    if (isRun(state) && state.tenant !== tenant.data) return turn.park('run_unknown', 'no such run for this tenant');
    this.apply(subject, tenant.data, turn, command(tenant.data, run.data));
  }

  #settled({ envelope, data }: Inbound<{ step: Data<typeof EffectSucceeded>['step']; attempt: number }>, turn: RunTurn, outcome: Exclude<Outcome, { status: 'unknown' }>): void {
    this.apply(envelope.subject, envelope.tenant, turn, { type: 'settle', at: turn.now, step: data.step, attempt: data.attempt, outcome });
  }

  /** Whoever holds the run's lane gets the run, if it is to be advanced now. */
  #grant(stream: string, tenant: string, turn: RunTurn): void {
    const run = turn.state(stream);
    const holder = run.status === 'open' ? holderOf(turn, run.pool) : null;
    if (holder !== null) this.apply(stream, tenant, turn, { type: 'grant', at: turn.now, holder });
  }

  /** Has the decider decide, records what it says, and tells whom it concerns. */
  apply(stream: string, tenant: string, turn: RunTurn, command: RunCommand): void {
    const decision = decide(command, turn.state(stream));
    switch (decision.kind) {
      case 'ignore':
        if (decision.because === 'already_refused') turn.answered();
        return turn.count('ignored', decision.because);
      case 'refuse':
        return this.#refuse(stream, tenant, turn, decision.because);
      case 'record':
        for (const event of decision.events) {
          const before = turn.state(stream);
          turn.record(stream, tenant, event);
          tell(stream, tenant, turn, before, event);
        }
        // What it waited for has come: it is handed to a worker again.
        if (command.type !== 'grant' && isLetGo(turn.state(stream))) this.#grant(stream, tenant, turn);
        return;
      default:
        return unreachable(decision);
    }
  }

  #refuse(stream: string, tenant: string, turn: RunTurn, { settles, bound, boundGroup, observed, again, ...refusal }: Refusal): void {
    turn.count('refused', refusal.reason);
    const run = turn.state(stream);
    if (!isRun(run)) return turn.park(refusal.reason, refusal.message);
    turn.answered();
    const progress = settles === undefined ? {} : { settles: [...settles] };
    const rejected = (): RunEvent =>
      IntentRejected({
        ...refusal,
        ...(turn.inHand?.topic === topics.agentIntents ? { offset: turn.inHand.offset } : {}),
        ...progress,
        ...(bound === undefined ? {} : { bound }),
        ...(boundGroup === undefined ? {} : { boundGroup: [...boundGroup] }),
        ...(observed === undefined ? {} : { observed: [...observed] }),
      });
    if (again === undefined) turn.record(stream, tenant, rejected());
    else if (settles !== undefined) turn.record(stream, tenant, StepsReported(progress));
    // A pool's topics exist since its first worker; without a lease none has come yet for this run.
    if (run.lease === null) return;
    tellEnds(stream, tenant, turn, refusal.fence, settles ?? []);
    const { token: _, ...told } = refusal;
    turn.send(runTasks(run.pool), stream, tenant, IntentRefused({ worker: refusal.fence === run.lease.fence ? run.lease.worker : null, ...told }));
  }

  #identity(tenant: Tenant, run: RunId, call: { step: Data<typeof CallTool>['step']; tool: Named; args: Json; target?: string | undefined }): CallIdentity {
    const contract = this.#contracts.tool(call.tool) ?? null;
    const target = call.target ?? null;
    const scoped = contract?.keyScope === 'target';
    const invalid = contract === null ? null : scoped && target === null ? 'the tool’s key scope is "target", so the intent must name its target' : this.#arguments.problem(contract, call.args);
    return {
      key: scoped && target !== null ? operationKey({ scope: 'target', tenant, tool: call.tool.name, target }) : operationKey({ scope: 'run', tenant, run, step: call.step, tool: call.tool.name, target }),
      digest: digestOf(material(contract, call.args)),
      digestVersion: DIGEST_VERSION,
      contract,
      invalid,
    };
  }
}

/** Held by nobody, after somebody had it. */
const isLetGo = (run: Run): boolean => run.status === 'open' && run.lease === null && run.lastFence > 0;

export const isRun = (run: Run): run is Extract<Run, { tenant: Tenant }> => run.status !== 'absent' && run.status !== 'lane';

const rejectReason = (reason: string): RejectReason => RejectReason.safeParse(reason).data ?? 'invalid';
