import { type Named, type Outcome, type ToolContract } from '@holdfast/protocol';
import type { ContractBook, SharedWord, Turn } from '@holdfast/runtime';
import type { EffectCommand } from './domain/commands.js';
import type { Effect, EffectEvent, RunEffects } from './domain/effect.js';
import { ended, gateOf, isCalm, newHealth, together, openGate, started, targetSays, ToolHealth, type Gate, type TargetSays } from './domain/health.js';

type EffectTurn = Turn<RunEffects, EffectEvent>;

/** Name of the row that spans lanes for a tool. */
export const healthKey = (tool: Named): string => `tool:${tool.name}@${tool.version}`;

/**
 * Circuit and limit of each tool. The row is asked, under its lock, for every attempt of a tool
 * with a declared limit, and of one that is not doing well as far as this instance knows: an
 * instance learns that from the first failure that it sees itself, since only then does it read
 * the row. It forgets when it finds the row calm. So a target that does well costs no lock, and one that
 * is down gets at most one attempt too many from each instance.
 */
export class ToolWatch {
  readonly #contracts: ContractBook;
  readonly #unwell = new Set<string>();
  /** How many effects of a tool this instance has held back, for the pace at which they are looked at. */
  readonly #held = new Map<string, number>();

  constructor(contracts: ContractBook) {
    this.#contracts = contracts;
  }

  /** Locks that a turn about a tool will ask for, as far as is known before it. */
  locks(tool: Named): string[] {
    return this.#watched(tool) ? [healthKey(tool)] : [];
  }

  gate(tool: Named, turn: EffectTurn): Gate {
    if (!this.#watched(tool)) return openGate;
    const health = this.#read(tool, turn);
    if (isCalm(health, turn.now)) this.#unwell.delete(healthKey(tool));
    return gateOf(health, `${tool.name}@${tool.version}`, turn.now);
  }

  /** When a held effect is next looked at: later the more of them there are, spread, so that they don't all come at once. */
  lookAgainAt(tool: Named, gate: Extract<Gate, { open: false }>, turn: EffectTurn): number {
    const spreadMs = Math.min(5000, 5 * (this.#held.get(healthKey(tool)) ?? 1));
    return Math.max(gate.lookAgainAt, turn.now + 50) + Math.floor(turn.random() * spreadMs);
  }

  /** Takes in what an event of an effect, and the command that brought it about, say about its target. */
  note(run: string, event: EffectEvent, effect: Effect, turn: EffectTurn, command?: EffectCommand): void {
    const key = healthKey(effect.tool);
    if (event.type === 'EffectHeld') this.#held.set(key, (this.#held.get(key) ?? 0) + 1);
    if (event.type === 'EffectDispatched') {
      this.#held.set(key, Math.max(0, (this.#held.get(key) ?? 0) - 1));
      if (this.#watched(effect.tool)) this.#write(effect.tool, turn, started(this.#read(effect.tool, turn), attemptOf(run, event.data), event.data.deadline));
      return;
    }
    const end = endOf(event, command?.type === 'report' ? command.outcome : null);
    if (end === null) return;
    const says = targetSays(end);
    if (says === 'failing' || says === 'overloaded') this.#unwell.add(key);
    if (this.#watched(effect.tool)) this.#end(run, event, effect, end, says, turn);
  }

  /** The place that an attempt under way has in the row of its tool, where places are counted. What is known of the target itself is learnt anew. */
  word(run: string, effect: Effect): SharedWord | null {
    const contract = this.#contracts.tool(effect.tool);
    if (effect.status !== 'dispatched' || contract?.concurrencyMax === undefined) return null;
    const own = started(newHealth(contract), attemptOf(run, effect), effect.deadline);
    return { key: healthKey(effect.tool), rank: 0, data: JSON.stringify(own), join: (before) => JSON.stringify(together(ToolHealth.parse(JSON.parse(before)), own)) };
  }

  #end(run: string, event: EffectEvent, effect: Effect, end: Outcome, says: TargetSays, turn: EffectTurn): void {
    const health = this.#read(effect.tool, turn);
    // Of a tool that is never sent from here nobody asks the gate.
    if (says === 'well' && isCalm(health, turn.now)) return void this.#unwell.delete(healthKey(effect.tool));
    const contract = this.#contracts.tool(effect.tool);
    const retryAfterMs = end.status === 'failed' ? end.failure.retryAfterMs : undefined;
    const attempt = 'attempt' in event.data ? attemptOf(run, { step: event.data.step, attempt: event.data.attempt }) : '';
    this.#write(effect.tool, turn, ended(health, contract ?? {}, attempt, says, turn.now, turn.random(), retryAfterMs));
  }

  #watched(tool: Named): boolean {
    return this.#unwell.has(healthKey(tool)) || this.#contracts.tool(tool)?.concurrencyMax !== undefined;
  }

  #read(tool: Named, turn: EffectTurn): ToolHealth {
    const data = turn.shared(healthKey(tool));
    const contract: Partial<ToolContract> = this.#contracts.tool(tool) ?? {};
    return data === null ? newHealth(contract) : ToolHealth.parse(JSON.parse(data));
  }

  #write(tool: Named, turn: EffectTurn, health: ToolHealth): void {
    turn.putShared(healthKey(tool), JSON.stringify(health));
  }
}

const attemptOf = (run: string, { step, attempt }: { readonly step: string; readonly attempt: number }): string => `${run}/${step}/${attempt}`;

/** An attempt's end: as its host told it, where one did; what followed from it may have another name. Null for events that end none. */
function endOf(event: EffectEvent, reported: Outcome | null): Outcome | null {
  switch (event.type) {
    case 'EffectSucceeded':
      return event.data.reconciled === undefined && event.data.replayed === undefined ? { status: 'succeeded', result: event.data.result, evidence: event.data.evidence } : null;
    case 'EffectRejected':
      return { status: 'rejected', reason: event.data.reason, evidence: event.data.evidence };
    case 'EffectFailed':
      return reported ?? { status: 'failed', failure: event.data.failure, evidence: event.data.evidence };
    case 'EffectRetryScheduled':
      return reported ?? { status: 'failed', failure: event.data.failure, evidence: { kind: 'ledger' } };
    case 'EffectOutcomeUnknown':
      return reported ?? { status: 'unknown', cause: event.data.cause, message: event.data.message };
    default:
      return null;
  }
}
