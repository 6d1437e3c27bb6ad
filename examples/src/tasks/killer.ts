import type { ManagedProcess } from '@holdfast/deploy';
import type { Watch } from './watch.js';

export interface Victim {
  readonly process: ManagedProcess;
  readonly kind: 'orchestrator' | 'ledger' | 'reconciliation' | 'worker';
}

export interface Kill {
  readonly kind: Victim['kind'];
  readonly name: string;
  /** Epoch milliseconds. */
  readonly at: number;
}

/** How long a kill waits for an effect in flight before it asks for more work, and in the end is done without. */
const IN_FLIGHT_WAIT_MS = 1000;
const KINDS: readonly Victim['kind'][] = ['worker', 'orchestrator', 'ledger', 'reconciliation'];

/**
 * Kills N times, the kinds of process in turn: `kill -9` while an irreversible effect is dispatched
 * and unfinished (of a worker: one of its own), then starts the process again.
 */
export async function killInTurn(options: { watch: Watch; victims: readonly Victim[]; times: number; chance: () => number; reword: boolean; /** Starts more runs; false when all are started. */ more: () => boolean; onKill: (kill: Kill) => void }): Promise<Kill[]> {
  const kills: Kill[] = [];
  for (let i = 0; i < options.times; i += 1) {
    const kind = KINDS[i % KINDS.length] ?? 'worker';
    const candidates = options.victims.filter((victim) => victim.kind === kind);
    const victim = await pick(options, candidates);
    if (victim === undefined) break;
    await victim.process.kill('SIGKILL');
    options.more();
    const kill = { kind, name: victim.process.name, at: Date.now() };
    kills.push(kill);
    options.onKill(kill);
    await victim.process.start(kind === 'worker' && options.reword ? { DEMO_REWORD: 'true' } : {});
  }
  return kills;
}

async function pick({ watch, chance, more }: { watch: Watch; chance: () => number; more: () => boolean }, candidates: readonly Victim[]): Promise<Victim | undefined> {
  const any = candidates[Math.floor(chance() * candidates.length)];
  let until = Date.now() + IN_FLIGHT_WAIT_MS;
  for (;;) {
    const lanes = watch.openAttempts().map(({ lane }) => lane);
    if (any !== undefined && any.kind !== 'worker' && lanes.length > 0) return any;
    const busy = candidates.filter(({ kind, process }) => kind === 'worker' && lanes.some((lane) => watch.holders.get(lane)?.startsWith(`${process.name}.`)));
    const one = busy[Math.floor(chance() * busy.length)];
    if (one !== undefined) return one;
    await watch.change(50);
    if (Date.now() < until) continue;
    if (!more()) return any;
    until = Date.now() + IN_FLIGHT_WAIT_MS;
  }
}

/** Kills at whose moment an irreversible effect was dispatched and unfinished, by the ledger's own events. */
export const killsInFlight = (kills: readonly Kill[], watch: Watch): number => kills.filter(({ at }) => watch.attempts.some(({ from, to }) => from <= at && (to === null || to > at))).length;
