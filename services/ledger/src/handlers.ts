import { Injectable } from '@nestjs/common';
import { unreachable } from '@holdfast/kernel';
import {
  answeredBy,
  DIGEST_VERSION,
  brakeKey,
  FireEffect,
  Pool,
  RevokeEffect,
  RunCancelRequested,
  RunFinished,
  RunId,
  toolTasks,
  type BrakeReleased,
  type BrakeSet,
  type BrakeTarget,
  type CaseSettled,
  type CompensationOrdered,
  type EffectDoubted,
  type EffectHeartbeat,
  type EffectReported,
  type EffectRequested,
  type Ending,
  type LaneTaken,
  type MessageOf,
  type Named,
  type RequestedCall,
  type RunPaused,
  type RunUnpaused,
  type Settled,
  type Step,
} from '@holdfast/protocol';
import type { ContractBook, Inbound, SharedWord, Turn, Unreadable } from '@holdfast/runtime';
import { ClaimRow, claimOf, ownKey, type Claim } from './domain/claim.js';
import type { EffectCommand, Sending } from './domain/commands.js';
import { decide, sentBefore } from './domain/decide.js';
import { isOpen, lookAgainAt, type Effect, type EffectEvent, type RunEffects } from './domain/effect.js';
import { openGate, type Gate } from './domain/health.js';
import { ToolWatch } from './tool-watch.js';

type Data<M> = MessageOf<M> extends { data: infer D } ? D : never;
type In<M> = Inbound<Data<M>>;
type EffectTurn = Turn<RunEffects, EffectEvent>;

/** All open streams of a lane: an effect's pool is known to its state alone. */
export const EFFECTS_TAG = 'effects';

/** Name of the row that spans lanes for an operation key. */
export const claimKey = (key: string): string => `effect:${key}`;

/** Turns messages into commands, has the decider decide, and sends what it grants. */
@Injectable()
export class EffectHandlers {
  readonly #contracts: ContractBook;
  readonly #source: string;
  readonly #watch: ToolWatch;
  /** Runs of which this turn reads that nothing more is to be sent: what they ask for before that, in the same turn, is not sent either. */
  #cancelledAhead: ReadonlySet<string> = new Set();

  /** `source`: this ledger's own `ce_source`, by which hosts say how far they had taken its tasks. */
  constructor(contracts: ContractBook, source: string) {
    this.#contracts = contracts;
    this.#source = source;
    this.#watch = new ToolWatch(contracts);
  }

  /** Locks that a message about a tool will ask for, so that its turn needn't begin anew with them. */
  locksFor(tool: Named): string[] {
    return this.#watch.locks(tool);
  }

  async prepare(inbounds: readonly Inbound[]): Promise<void> {
    this.#cancelledAhead = new Set(inbounds.flatMap(({ envelope, data }) => (stops(envelope.type, data) ? [envelope.subject] : [])));
    for (const { data } of inbounds) {
      if (typeof data !== 'object' || data === null) continue;
      const { call, of, tool = call?.tool } = data as { call?: { tool: Named }; of?: unknown; tool?: Named };
      if (tool !== undefined && (call ?? of) !== undefined && this.#contracts.tool(tool) === undefined) return this.#contracts.catchUp();
    }
  }

  requested = (inbound: In<typeof EffectRequested>, turn: EffectTurn): void => {
    this.settles(inbound, turn);
    const { call, fire, fence, held } = inbound.data;
    if (fire === 'local') return; // Its worker fires it; the ledger hears of its end.
    const { subject, tenant } = inbound.envelope;
    const claim = call.keyScope === 'target' ? this.#claim(turn, call.key, subject, call.step) : ownKey;
    if (turn.state(subject).has(call.step)) return turn.count('ignored', 'duplicate');
    const gate = held !== undefined ? openGate : this.#cancelledAhead.has(subject) ? overAhead(turn.now) : this.#watch.gate(call.tool, turn);
    this.#apply(subject, tenant, turn, { type: 'request', call, fence: fence ?? 0, claim, held, gate, ...this.#sending(turn, call.tool) });
  };

  /** A compensation goes the way of every effect: granted, once, under its key. */
  ordered = ({ data, envelope }: In<typeof CompensationOrdered>, turn: EffectTurn): void => {
    const { step, tool, effect, args, key, digest, fence, after, because } = data;
    const call: RequestedCall = { step, tool, effect, keyScope: 'run', args, key, digest, digestVersion: DIGEST_VERSION };
    this.#apply(envelope.subject, envelope.tenant, turn, { type: 'order', call, fence, after, because, gate: this.#watch.gate(tool, turn), ...this.#sending(turn, tool) });
  };

  doubted = ({ data, envelope }: In<typeof EffectDoubted>, turn: EffectTurn): void => {
    const { because, ...call } = data;
    this.#apply(envelope.subject, envelope.tenant, turn, { type: 'doubt', call, because, ...this.#sending(turn, call.tool) });
  };

  /** What a run's worker reported, as it stands in the run's stream. */
  settles = (inbound: Inbound<{ settles?: readonly Settled[] | undefined }>, turn: EffectTurn): void => {
    const { subject, tenant } = inbound.envelope;
    for (const { step, attempt, outcome, local } of inbound.data.settles ?? []) {
      const tool = turn.state(subject).get(step)?.tool ?? local?.tool;
      if (tool === undefined) continue;
      this.#apply(subject, tenant, turn, { type: 'report', step, attempt, outcome, ...(local === undefined ? {} : { local }), ...this.#sending(turn, tool) });
    }
  };

  reported = (inbound: In<typeof EffectReported>, turn: EffectTurn): void => {
    const { subject, tenant } = inbound.envelope;
    const { step, key, attempt, outcome } = inbound.data;
    if (!RunId.safeParse(subject).success) return turn.park('invalid_id', 'the record’s key is not a run id');
    const effect = turn.state(subject).get(step);
    if (effect === undefined || turn.tenantOf(subject) !== tenant) return turn.park('effect_unknown', `run ${subject} has no effect at step ${step}`);
    if (effect.key !== key) return turn.park('key_mismatch', `step ${step} of run ${subject} has operation key ${effect.key}, the report names ${key}`);
    this.#apply(subject, tenant, turn, { type: 'report', step, attempt, outcome, ...this.#sending(turn, effect.tool) });
    // Read again after a later attempt, it would look like a late end.
    turn.answered();
  };

  alive = (inbound: In<typeof EffectHeartbeat>, turn: EffectTurn): void => {
    const { subject, tenant } = inbound.envelope;
    const { step, key, attempt, progress } = inbound.data;
    const effect = RunId.safeParse(subject).success ? turn.state(subject).get(step) : undefined;
    if (effect?.key !== key || turn.tenantOf(subject) !== tenant) return turn.count('ignored', 'effect_unknown');
    this.#apply(subject, tenant, turn, { type: 'alive', step, attempt, progress, ...this.#sending(turn, effect.tool) });
  };

  caseSettled = (inbound: In<typeof CaseSettled>, turn: EffectTurn): void => {
    const { subject, tenant } = inbound.envelope;
    const { step, attempt, verdict, by, evidence, because, readAt, sealing, forced } = inbound.data;
    const effect = turn.state(subject).get(step);
    if (effect === undefined) return turn.count('ignored', 'effect_unknown');
    this.#apply(subject, tenant, turn, { type: 'verdict', step, attempt, verdict, by, evidence, because, readAt, sealing, forced, ...this.#sending(turn, effect.tool) });
  };

  cancelled = (inbound: In<typeof RunCancelRequested>, turn: EffectTurn): void => {
    const { by, reason, manner } = inbound.data;
    this.#cancel(inbound.envelope.subject, turn, `${by.name} has cancelled the run: ${reason}`, manner === 'immediate');
  };

  /** However a run ended, what still waits to be sent for it is not sent. */
  ended = (inbound: In<typeof RunFinished>, turn: EffectTurn): void => {
    this.settles(inbound, turn);
    const { status } = inbound.data.ending;
    if (isStopped(status)) this.#cancel(inbound.envelope.subject, turn, `the run is ${status}`, false);
  };

  /** A run is held still, or let go: by an operator, or by a brake on its tenant or agent. */
  paused = ({ envelope, data }: In<typeof RunPaused>, turn: EffectTurn): void => {
    const by = data.brake ?? 'run';
    for (const { step, tool } of turn.state(envelope.subject).values()) this.#apply(envelope.subject, envelope.tenant, turn, { type: 'pause', step, by, because: `${data.by.name} holds ${by === 'run' ? 'the run' : by} still: ${data.reason}`, ...this.#sending(turn, tool) });
  };

  unpaused = ({ envelope, data }: In<typeof RunUnpaused>, turn: EffectTurn): void => {
    for (const { step, tool } of turn.state(envelope.subject).values()) this.#apply(envelope.subject, envelope.tenant, turn, { type: 'unpause', step, by: data.brake ?? 'run', because: `${data.by.name} lets it go`, ...this.#sending(turn, tool) });
  };

  braked = ({ data }: In<typeof BrakeSet>, turn: EffectTurn): void => this.#brake(data.target, turn, 'pause', `${data.by.name} holds ${brakeKey(data.target)} still: ${data.reason}`);
  unbraked = ({ data }: In<typeof BrakeReleased>, turn: EffectTurn): void => this.#brake(data.target, turn, 'unpause', `${data.by.name} lets it go`);

  /** Runs of a tenant or an agent are held one by one, and say so in their own streams; a tool is held here. */
  #brake(target: BrakeTarget, turn: EffectTurn, type: 'pause' | 'unpause', because: string): void {
    if (target.kind !== 'tool') return;
    for (const run of turn.open(EFFECTS_TAG)) {
      for (const { step, tool } of turn.state(run).values()) {
        if (tool.name === target.name && (target.version ?? tool.version) === tool.version) this.#apply(run, turn.tenantOf(run), turn, { type, step, by: brakeKey(target), because, ...this.#sending(turn, tool) });
      }
    }
  }

  laneTaken = (inbound: In<typeof LaneTaken>, turn: EffectTurn): void => {
    const { pool, taken } = inbound.data;
    // Numbers of a rebuilt ledger lie above those of its earlier lives, and so do its tasks in the partition.
    const own = this.#source.slice(0, this.#source.lastIndexOf('/') + 1);
    const takenSeq = Math.max(0, ...Object.entries(taken).flatMap(([source, seq]) => (source.startsWith(own) ? [seq] : [])));
    for (const run of turn.open(EFFECTS_TAG)) {
      for (const effect of turn.state(run).values()) {
        if (effect.status === 'dispatched') this.#apply(run, turn.tenantOf(run), turn, { type: 'host_lost', step: effect.step, pool, takenSeq, ...this.#sending(turn, effect.tool) });
      }
    }
  };

  due = (run: string, turn: EffectTurn): void => {
    for (const effect of turn.state(run).values()) {
      if (!isOpen(effect)) continue;
      const claim = effect.status === 'joined' ? this.#claim(turn, effect.key, run, effect.step) : ownKey;
      const gate = effect.status === 'held' || (effect.status === 'retry_scheduled' && effect.retryAt <= turn.now) ? this.#watch.gate(effect.tool, turn) : openGate;
      this.#apply(run, turn.tenantOf(run), turn, { type: 'due', step: effect.step, claim, gate, ...this.#sending(turn, effect.tool) });
      const after = turn.state(run).get(effect.step);
      if (after?.status === 'held' && !gate.open) turn.wake(run, this.#watch.lookAgainAt(effect.tool, gate, turn));
      if (after?.status === 'joined') turn.wake(run, lookAgainAt(after, turn.now));
    }
  };

  unreadable = ({ reason, message }: Unreadable, turn: EffectTurn): void => turn.park(reason, message);

  poison = (_stream: string, _tenant: string, error: Error, turn: EffectTurn): void => turn.park('poison', `${error.name}: ${error.message}`);

  #cancel(run: string, turn: EffectTurn, because: string, revoke: boolean): void {
    for (const effect of turn.state(run).values()) {
      const { step, key } = effect;
      // What answers an effect is not the run's own, and outlives it.
      if (answeredBy(step) !== null) continue;
      this.#apply(run, turn.tenantOf(run), turn, { type: 'cancel', step, because, ...this.#sending(turn, effect.tool) });
      if (revoke && effect.status === 'dispatched') turn.send(toolTasks(effect.pool), run, turn.tenantOf(run), RevokeEffect({ step, key, attempt: effect.attempt, because }));
    }
  }

  #sending(turn: EffectTurn, tool: Named): Sending {
    // The event comes first, its task right behind it.
    return { at: turn.now, contract: this.#contracts.tool(tool) ?? null, taskSeq: turn.seqAhead(1), jitter: turn.random() };
  }

  #claim(turn: EffectTurn, key: string, run: string, step: Step): Claim {
    const data = turn.shared(claimKey(key));
    return claimOf(data === null ? null : ClaimRow.parse(JSON.parse(data)), run as RunId, step);
  }

  #apply(run: string, tenant: string, turn: EffectTurn, command: EffectCommand): void {
    const step = 'call' in command ? command.call.step : command.step;
    const before = turn.state(run).get(step);
    const decision = decide(command, turn.state(run));
    switch (decision.kind) {
      case 'ignore':
        return turn.count('ignored', decision.because);
      case 'refuse':
        return unreachable(decision.because);
      case 'record':
        for (const event of decision.events) {
          turn.record(run, tenant, event);
          const effect = turn.state(run).get(step);
          if (effect === undefined) continue;
          this.#watch.note(run, event, effect, turn, command);
          if (event.type === 'EffectDispatched') this.#send(run, tenant, turn, effect);
          if (effect.status === 'held' && effect.paused.size === 0 && command.type !== 'pause') turn.wake(run, turn.now);
          if (effect.status === 'joined') turn.wake(run, lookAgainAt(effect, turn.now));
          this.#revoke(run, tenant, turn, before, effect);
          this.#noteClaim(run, turn, before, effect);
        }
        return;
      default:
        return unreachable(decision);
    }
  }

  #send(run: string, tenant: string, turn: EffectTurn, effect: Effect): void {
    if (effect.status !== 'dispatched') return;
    const { step, key, tool, attempt, fence, args, notAfter, pool, digest, keyScope, attemptsMax, repairs } = effect;
    const rest = { digest, keyScope, ...(attemptsMax === null ? {} : { attemptsMax }), ...(repairs === null ? {} : { repairs }) };
    const timeoutMs = this.#contracts.tool(tool)?.timeoutMs ?? effect.deadline - notAfter;
    turn.send(toolTasks(pool), run, tenant, FireEffect({ step, key, tool, effect: effect.effect, attempt, fence, args, notAfter, timeoutMs, ...rest }));
  }

  /** An earlier attempt turned out to have succeeded: the one under way is not to fire any more, if it can still be stopped. */
  #revoke(run: string, tenant: string, turn: EffectTurn, before: Effect | undefined, { status, step, key, ...effect }: Effect): void {
    if (before?.status !== 'dispatched' || status !== 'succeeded' || effect.attempt === before.attempt) return;
    turn.send(toolTasks(before.pool), run, tenant, RevokeEffect({ step, key, attempt: before.attempt, because: `attempt ${effect.attempt} has succeeded` }));
  }

  /** A task of this ledger, read back while its journal is rebuilt: one whose event was lost with the database must never be sent again. */
  sent = (inbound: In<typeof FireEffect>, turn: EffectTurn): void => {
    const { subject, tenant } = inbound.envelope;
    const { step, tool } = inbound.data;
    const found = { pool: poolOf(inbound.record.topic), taskSeq: inbound.envelope.seq ?? 0, sentAt: inbound.envelope.time, contract: this.#contracts.tool(tool) ?? null };
    const event = sentBefore(inbound.data, turn.state(subject).get(step), found);
    if (event !== null) turn.record(subject, tenant, event);
  };

  /** What an effect has in rows that span lanes. */
  shared(run: string, effect: Effect): SharedWord[] {
    const claim = claimWord(run as RunId, effect);
    const place = this.#watch.word(run, effect);
    return [...(claim === null ? [] : [{ key: claimKey(effect.key), data: JSON.stringify(claim.row), rank: claim.rank }]), ...(place === null ? [] : [place])];
  }

  /** Keeps the row of a key with scope `target` in step with its owner's effect. */
  #noteClaim(run: string, turn: EffectTurn, before: Effect | undefined, effect: Effect): void {
    if (effect.keyScope !== 'target' || effect.status === 'joined' || effect.status === 'conflicted' || before?.status === 'joined') return;
    const row = claimRowOf(run as RunId, effect);
    if (row !== null) turn.putShared(claimKey(effect.key), JSON.stringify(row));
  }
}

/** Messages after which nothing more is sent for their run. */
function stops(type: string, data: unknown): boolean {
  return type === RunCancelRequested.type || (type === RunFinished.type && isStopped((data as Data<typeof RunFinished>).ending.status));
}
const isStopped = (status: Ending['status']): boolean => status === 'cancelled' || status === 'expired' || status === 'failed';
const overAhead = (at: number): Gate => ({ open: false, because: 'paused', message: 'its run is cancelled or over by what comes next', lookAgainAt: at });

const poolOf = (topic: string): Pool => Pool.parse(topic.slice(toolTasks('' as Pool).length));

/** What an effect has in the row of its key once its stream alone is known; of several runs' words on one key the strongest counts. */
export function claimWord(run: RunId, effect: Effect): { readonly row: ClaimRow; readonly rank: number } | null {
  if (effect.keyScope !== 'target' || effect.status === 'joined' || effect.status === 'conflicted') return null;
  if (effect.status === 'succeeded') return effect.replayed ? null : { row: claimRowOf(run, effect) ?? { status: 'free' }, rank: 2 };
  if (isOpen(effect)) return { row: { status: 'claimed', run, step: effect.step, digest: effect.digest }, rank: 1 };
  return { row: { status: 'free' }, rank: 0 };
}

function claimRowOf(run: RunId, effect: Effect): ClaimRow | null {
  const { step, digest } = effect;
  switch (effect.status) {
    case 'dispatched':
    case 'held':
      return { status: 'claimed', run, step, digest };
    case 'succeeded':
      return { status: 'succeeded', run, step, digest, result: effect.result, evidence: effect.evidence };
    case 'rejected':
    case 'failed':
      return { status: 'free' };
    default:
      return null; // Held still: nobody knows, or it is tried again.
  }
}
