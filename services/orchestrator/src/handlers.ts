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
  RunId,
  runTasks,
  StepsReported,
  Tenant,
  topics,
  type AdmitRun,
  type AnnounceLane,
  type CallGroup,
  type CallTool,
  type CopySteps,
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
  type StartFork,
  type StartRun,
} from '@holdfast/protocol';
import { SchemaChecker, type ContractBook, type Inbound, type Turn, type Unreadable } from '@holdfast/runtime';
import type { CallIdentity, Refusal, RunCommand } from './domain/commands.js';
import { sameNamed } from './domain/accept.js';
import { onRun, onTool } from './domain/brakes.js';
import { useOfEvent } from './domain/budget.js';
import { decide } from './domain/decide.js';
import { grantedBefore } from './domain/granted-before.js';
import { toolsOpen } from './domain/revalidate.js';
import type { Run, RunEvent } from './domain/run.js';
import { dueAt } from './domain/waiting.js';
import { Gates } from './gates.js';
import { DEFAULT_SETTINGS, type Settings } from './settings.js';
import { brakesOf, holderOf, tellHeldTools } from './lanes.js';
import { TenantBudgets } from './tenant-budget.js';
import { measure } from './measure.js';
import { answerParent, refuseParent, tell, tellAgain, tellEnds } from './tell.js';
import { unread } from './unread.js';

type Data<M> = MessageOf<M> extends { data: infer D } ? D : never;
type In<M> = Inbound<Data<M>>;
type RunTurn = Turn<Run, RunEvent>;

/** Recovered runs are granted over this long for each of them, so that a take-over is no stampede. Milliseconds. */
const GRANT_SPREAD_MS = 1;
const GRANT_SPREAD_MOST_MS = 5000;
const TAKES_FROM_BUDGET: ReadonlySet<RunCommand['type']> = new Set(['call', 'group', 'record', 'try', 'wait'] as const);
/** A write under way is over by then; a group that has expired begins its generations at 1 again. Milliseconds. */
const GENERATIONS_COUNT_ON_MS = 10 * 60 * 1000;

/** Turns messages into commands, has the decider decide, and says it to stream, worker and asker. */
@Injectable()
export class RunHandlers {
  readonly #contracts: ContractBook;
  readonly #arguments: SchemaChecker;
  readonly #gates: Gates;
  readonly budgets: TenantBudgets;

  /** `checker`: one for many handlers saves compiling each tool's schema anew. */
  constructor(contracts: ContractBook, checker = new SchemaChecker('input'), readonly settings: Settings = DEFAULT_SETTINGS) {
    this.#contracts = contracts;
    this.#arguments = checker;
    this.#gates = new Gates(settings.limits);
    this.budgets = new TenantBudgets(settings.limits);
  }

  /** Reads contracts anew where an intent names one that isn't known yet, and for each worker's announcement: what it names was declared before it was sent. */
  async prepare(inbounds: readonly Inbound[]): Promise<void> {
    for (const { data } of inbounds) {
      const named = typeof data === 'object' && data !== null && 'tool' in data ? [data.tool as Named] : typeof data === 'object' && data !== null && 'calls' in data ? (data.calls as { tool: Named }[]).map(({ tool }) => tool) : [];
      // An agent may be declared otherwise under the same version (a renewed secret), and a run is resumed by what its worker declares.
      const announced = typeof data === 'object' && data !== null && 'taken' in data && 'agents' in data && (data.agents as Named[]).length > 0;
      if (announced || named.some((tool) => this.#contracts.tool(tool) === undefined)) {
        await this.#contracts.catchUp();
        return;
      }
    }
  }

  start = (inbound: In<typeof StartRun>, turn: RunTurn): void => this.#start(inbound, turn);

  /** A run that begins with what another has recorded. */
  startFork = (inbound: In<typeof StartFork>, turn: RunTurn): void => {
    const { start, ...fork } = inbound.data;
    this.#start({ ...inbound, data: start }, turn, fork);
    this.#grantFork(inbound.envelope.subject, inbound.envelope.tenant, turn);
  };

  copySteps = ({ envelope: { subject, tenant }, data }: In<typeof CopySteps>, turn: RunTurn): void => {
    const run = turn.state(subject);
    if (!isRun(run) || run.tenant !== tenant) return turn.count('ignored', 'no_such_fork');
    this.apply(subject, tenant, turn, { type: 'copy', at: turn.now, data });
    this.#grantFork(subject, tenant, turn);
  };

  /** Its grant carries what was copied. */
  #grantFork(stream: string, tenant: string, turn: RunTurn): void {
    const run = turn.state(stream);
    if (isRun(run) && run.lastFence === 0) this.#grant(stream, tenant, turn);
  }

  #start(inbound: In<typeof StartRun>, turn: RunTurn, fork?: Omit<Data<typeof StartFork>, 'start'>): void {
    const pool = inbound.data.pool ?? DEFAULT_POOL;
    const inputDigest = digestOf(inbound.data.input);
    const { subject: run, tenant } = inbound.envelope;
    const { parent } = inbound.data;
    const { agent } = inbound.data;
    const isHeld = onRun(brakesOf(turn), { tenant: tenant as Tenant, agent }).length > 0;
    this.intent(inbound, turn, (tenant) => {
      const admission = turn.state(run).status === 'absent' ? this.#gates.start(run, tenant, inbound.data, turn) : undefined;
      return { type: 'start', at: turn.now, tenant, data: inbound.data, inputDigest, holder: isHeld || fork !== undefined ? null : holderOf(turn, pool, this.#contracts), ...(admission === undefined ? {} : { admission }), ...(fork === undefined ? {} : { fork }), ...(turn.inHand === null ? {} : { offset: turn.inHand.offset }) };
    });
    // Read again, a start that was refused must not become a run.
    if (turn.state(run).status === 'absent') turn.answered();
    this.brake(run, turn);
    if (parent === undefined) return;
    const other = otherRun(turn.state(run), tenant, inbound.data.agent, inputDigest);
    // Whoever wants a child hears what became of it, also where there is none.
    if (other !== null) return refuseParent(run, tenant, turn, parent, other);
    answerParent(run, tenant, turn, parent);
    this.apply(run, tenant, turn, { type: 'join', at: turn.now, parent });
  }

  /** Its turn has come where it waited. */
  admit = ({ envelope, data }: In<typeof AdmitRun>, turn: RunTurn): void => {
    const { subject, tenant } = envelope;
    const run = turn.state(subject);
    if (run.status !== 'open' || run.tenant !== tenant || run.queued?.gate !== data.gate) return turn.count('ignored', 'not_queued');
    const admission = this.#gates.further(subject, run, data.gate, turn);
    if (admission === null) return turn.count('ignored', 'not_its_turn');
    this.apply(subject, tenant, turn, { type: 'admit', at: turn.now, gate: data.gate, admission });
    this.#grant(subject, tenant, turn);
  };

  call = (inbound: In<typeof CallTool>, turn: RunTurn): void => {
    const brake = onTool(brakesOf(turn), inbound.data.tool);
    this.intent(inbound, turn, (tenant, run) => ({ type: 'call', at: turn.now, data: inbound.data, identity: this.#identity(tenant, run, inbound.data), brake }));
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
    tellHeldTools(turn, pool);
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
    this.brake(stream, turn);
    const { stuckAfterMs } = this.settings;
    if (dueAt(run, stuckAfterMs) !== null) this.apply(stream, run.tenant, turn, { type: 'due', at: turn.now, stuckAfterMs });
    this.#grant(stream, run.tenant, turn);
  };

  /** After a rebuild: what was sent may be lost with the old journal, so every run of the lane is granted anew, and says to other runs again what it has said; the lane's holder hears again which tools are held still. */
  reopen = (stream: string, turn: RunTurn): void => {
    const lane = turn.state(stream);
    if (lane.status !== 'lane') return tellAgain(stream, turn.tenantOf(stream), turn);
    const { worker, agents, offset, generation, at, rebuilt } = lane;
    const pool = Pool.parse(stream.split('/')[1]);
    turn.record(stream, turn.tenantOf(stream), LaneTaken({ pool, lane: turn.lane, worker, agents: [...agents], taken: {}, offset, at, rebuilt: rebuilt + 1, ...(generation === null ? {} : { generation }) }));
    tellHeldTools(turn, pool);
  };

  /** A grant of this orchestrator, read back while its journal is rebuilt. */
  sent = (inbound: In<typeof RunGranted>, turn: RunTurn): void => {
    const { subject, tenant } = inbound.envelope;
    const event = grantedBefore(inbound.data, turn.state(subject));
    if (event !== null) turn.record(subject, tenant, event);
  };

  unreadable = (problem: Unreadable, turn: RunTurn): void => {
    const { record, envelope, reason, message } = problem;
    turn.park(reason, message);
    if (envelope === undefined || record.topic !== topics.agentIntents) return;
    const run = turn.state(envelope.subject);
    // A run belongs to one tenant: another's message says nothing in it.
    if (!isRun(run) || run.tenant !== envelope.tenant) return;
    this.apply(envelope.subject, envelope.tenant, turn, unread(problem, envelope, turn.now));
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
    this.brake(subject, turn);
    this.apply(subject, tenant.data, turn, command(tenant.data, run.data));
  }

  /** Brings a run in step with the brakes of its lane. */
  brake(stream: string, turn: RunTurn): void {
    const run = turn.state(stream);
    if (run.status !== 'open') return;
    const brakes = brakesOf(turn);
    if (run.brakes.size > 0 || onRun(brakes, run).length > 0) this.apply(stream, run.tenant, turn, { type: 'brake', at: turn.now, brakes });
  }

  #settled({ envelope, data }: Inbound<{ step: Data<typeof EffectSucceeded>['step']; attempt: number }>, turn: RunTurn, outcome: Exclude<Outcome, { status: 'unknown' }>): void {
    this.apply(envelope.subject, envelope.tenant, turn, { type: 'settle', at: turn.now, step: data.step, attempt: data.attempt, outcome });
  }

  /** Whoever holds the run's lane gets the run, if it is to be advanced now. */
  #grant(stream: string, tenant: string, turn: RunTurn): void {
    const run = turn.state(stream);
    const holder = run.status === 'open' ? holderOf(turn, run.pool, this.#contracts) : null;
    if (holder === null || run.status !== 'open') return;
    const undeclared = toolsOpen(run).filter((tool) => this.#contracts.tool(tool) === undefined);
    this.apply(stream, tenant, turn, { type: 'grant', at: turn.now, holder: { ...holder, undeclared } });
  }

  /** Has the decider decide, records what it says, and tells whom it concerns. */
  apply(stream: string, tenant: string, turn: RunTurn, command: RunCommand): void {
    const spent = TAKES_FROM_BUDGET.has(command.type) ? this.budgets.spent(tenant, turn) : null;
    const decision = decide(spent === null ? command : ({ ...command, spent } as RunCommand), turn.state(stream));
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
          measure(turn, before, event);
          this.#count(stream, tenant, turn, before, event);
          if (event.type === 'RunFinished' && isRun(before)) this.#gates.leave(stream, before, turn);
        }
        // What it waited for has come: it is handed to a worker again.
        if (command.type !== 'grant' && isLetGo(turn.state(stream))) this.#grant(stream, tenant, turn);
        return;
      default:
        return unreachable(decision);
    }
  }

  /** What a run uses is its tenant's as well. */
  #count(stream: string, tenant: string, turn: RunTurn, before: Run, event: RunEvent): void {
    const run = turn.state(stream);
    const use = isRun(run) ? useOfEvent(isRun(before) ? before : null, run, event, turn.now) : null;
    if (use === null || !isRun(run)) return;
    for (const said of this.budgets.use(run, use, turn)) turn.record(stream, tenant, said);
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

/** Why a run is not the one that somebody wanted as a child; null when it is. */
function otherRun(run: Run, tenant: string, agent: Named | null, inputDigest: string): string | null {
  if (!isRun(run)) return 'its start was refused';
  if (run.tenant !== tenant) return 'no run can be started under this id for this tenant';
  return run.inputDigest === inputDigest && sameNamed(run.agent, agent) ? null : 'a run with this id exists with another input or agent';
}

/** Held by nobody, after somebody had it. */
const isLetGo = (run: Run): boolean => run.status === 'open' && run.lease === null && run.lastFence > 0;

export const isRun = (run: Run): run is Extract<Run, { tenant: Tenant }> => run.status !== 'absent' && run.status !== 'lane' && run.status !== 'brakes';
