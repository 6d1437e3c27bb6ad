import type { EffectClass, FailureClass, Json } from '@holdfast/protocol';
import { applied, Failed, MayHaveApplied, notApplied, pending, Rejected, stillUnknown, type ProbeAnswer, type ProbeContext, type ToolContext } from '@holdfast/sdk';
import { Chance } from './chance.js';
import type { Core } from './core.js';
import type { SimProcess } from './process.js';

/** One request as the world received it. */
export interface Firing {
  readonly tool: string;
  readonly effect: EffectClass;
  readonly key: string;
  readonly args: string;
  readonly run: string;
  readonly step: string;
  readonly attempt: number;
  readonly fence: number;
  readonly process: string;
  /** What the clock of its process showed. */
  readonly clock: number;
  readonly at: number;
  /** Whether it changed the world. */
  applied: boolean;
  ended: boolean;
  /** A sealing probe has seen to it that it changes nothing any more. */
  voided: boolean;
}

/** What a system of record does with one operation key, call by call; the last one repeats. */
export type Behaviour = { readonly does: 'apply'; readonly afterMs: number } | { readonly does: 'fail'; readonly as: FailureClass; readonly notApplied: boolean } | { readonly does: 'reject' } | { readonly does: 'doubt'; readonly applied: boolean };

/** The tool whose calls find now and then that somebody has changed the thing since. */
export const GUARDED = 'door.reset';
/** Tools whose calls are in doubt once more, now and then, when the first was proved not to have happened. */
const DOUBTED_TWICE: readonly string[] = ['fund.take', 'fund.return'];
/** The tool whose calls leave it open now and then whether they have happened: by chance alone that would be too rare for what hangs on it. */
export const DOUBTFUL = 'key.hand';
/** Name of the target about which each run says something else. */
export const CONTESTED = 'contested-';
const RARELY_SLOW_MS = 900;
const APPLIES: Behaviour = { does: 'apply', afterMs: 0 };

/** What of a tool its behaviour depends on. */
type Fired = { readonly name: string; readonly effect: EffectClass };

/** The fake world: counts every firing, judges nothing, and is asked for the truth at the end. */
export class FakeWorld {
  readonly firings: Firing[] = [];
  readonly byKey = new Map<string, Firing[]>();
  /** No probe is ever asked: when a call takes effect, matters to nobody. */
  isUnasked = false;
  /** Calls that have not ended yet. */
  inFlight = 0;
  /** Told of each call before anything else. */
  onFiring: (firing: Firing) => void = () => undefined;
  readonly #behaviours = new Map<string, readonly Behaviour[]>();
  /** The last attempt of each key that a probe has voided. */
  readonly #sealed = new Map<string, number>();
  #probes = 0;

  constructor(private readonly core: Core) {}

  /** A tool's call, made by a process. */
  call(process: SimProcess, tool: { readonly name: string; readonly effect: EffectClass; readonly granted: boolean }, args: { readonly n: number } & { readonly [name: string]: Json }, context: ToolContext): Promise<string> {
    if (!process.alive) return new Promise(() => undefined);
    const fault = process.fault(tool.granted ? 'fire.granted' : 'fire.local', () => [`"name":"${tool.name}"`]);
    if (fault === 'crash_before') {
      process.crash(`before the call of ${tool.name}`);
      return new Promise(() => undefined);
    }
    const { operationKey: key, run, step, attempt, fence } = context;
    const firing: Firing = { tool: tool.name, effect: tool.effect, key, args: JSON.stringify(args), run, step, attempt, fence, process: process.name, clock: process.clock.now(), at: this.core.scheduler.now, applied: false, ended: false, voided: attempt <= (this.#sealed.get(key) ?? 0) };
    this.firings.push(firing);
    const before = this.byKey.get(key) ?? [];
    this.byKey.set(key, [...before, firing]);
    this.core.trace(process.name, `fires ${tool.name} ${run}/${step} attempt ${attempt}, the key's call no. ${before.length + 1}`);
    this.onFiring(firing);
    const script = this.#behaviour(tool, key, args);
    const behaviour = script[Math.min(before.length, script.length - 1)] ?? APPLIES;
    this.inFlight += 1;
    const { scheduler } = this.core;
    const name = `${scheduler.nameFor(process)} ${tool.name} ${fault ?? ''}`;
    const takes = (behaviour.does === 'apply' ? behaviour.afterMs : 0) + process.latency() + (fault === 'slow' ? process.chance.pick([700, 1500]) : 0);
    return new Promise((resolve, reject) => {
      scheduler.at(scheduler.now + takes, null, () => {
        this.inFlight -= 1;
        firing.ended = true;
        firing.applied = !firing.voided && (behaviour.does === 'apply' || (behaviour.does === 'doubt' && behaviour.applied));
        this.core.trace('world', () => `${tool.name} ${run}/${step}: ${firing.applied ? 'applied' : 'not applied'} (${behaviour.does})`);
        if (fault === 'crash_after') return process.crash(`after the call of ${tool.name} took effect`);
        scheduler.at(scheduler.now + process.latency(), process, () => {
          if (firing.voided) return reject(new Failed({ class: 'transient', message: 'it was voided', notApplied: true }));
          switch (behaviour.does) {
            case 'apply':
              return resolve(resultOf(tool.name, args.n));
            case 'fail':
              return reject(new Failed({ class: behaviour.as, message: 'as scripted', ...(behaviour.notApplied ? { notApplied: true } : {}) }));
            case 'reject':
              return reject(new Rejected('the business says no'));
            case 'doubt':
              return reject(new MayHaveApplied('nobody can say'));
          }
        }, { name: scheduler.nameOf(name, [firing.voided, behaviour]) });
      }, { name, soon: this.isUnasked && fault === null });
    });
  }

  /** A probe's question, asked by a process: read when it arrives. Sealing, it voids what has not taken effect of this attempt and those before. */
  probe(process: SimProcess, tool: { readonly name: string; readonly sealing: boolean }, args: { readonly n: number }, context: ProbeContext): Promise<ProbeAnswer<string>> {
    if (!process.alive) return new Promise(() => undefined);
    const fault = process.fault('probe', () => [`"name":"${tool.name}"`]);
    if (fault === 'crash_before') {
      process.crash(`before it asked ${tool.name}`);
      return new Promise(() => undefined);
    }
    const { scheduler } = this.core;
    const name = `${scheduler.nameFor(process)} probe ${fault ?? ''}`;
    return new Promise((resolve) => {
      scheduler.at(scheduler.now + process.latency() + (fault === 'slow' ? 1500 : 0), null, () => {
        const answer = this.#look(tool, args.n, context);
        this.core.trace('world', () => `${tool.name} ${context.run}/${context.step} asked about attempt ${context.attempt}: ${answer.status}`);
        if (fault === 'crash_after') return process.crash(`after it asked ${tool.name}`);
        scheduler.at(scheduler.now + process.latency(), process, () => resolve(answer), { name: scheduler.nameOf(name, answer) });
      }, { name });
    });
  }

  /** What it has seen, in words. */
  standing(): string {
    return JSON.stringify([this.inFlight, this.#probes, [...this.byKey], [...this.#sealed]]);
  }

  /** What a person finds who looks. */
  hasHappened(key: string): boolean {
    return (this.byKey.get(key) ?? []).some((firing) => firing.applied);
  }

  #look({ name, sealing }: { readonly name: string; readonly sealing: boolean }, n: number, { operationKey: key, attempt }: ProbeContext): ProbeAnswer<string> {
    this.#probes += 1;
    const chance = new Chance(`${this.core.seed}/probe/${this.#probes}`);
    // While it can't say what became of the second, what it said of the first may come once more.
    const again = DOUBTED_TWICE.includes(name) && (this.byKey.get(key)?.length ?? 0) > 1;
    if (chance.hits(again ? 0.6 : 0.15)) return stillUnknown('not now');
    if (this.hasHappened(key)) return applied(resultOf(name, n), 'found under its key');
    const underWay = (this.byKey.get(key) ?? []).filter((firing) => !firing.ended && firing.attempt <= attempt);
    if (sealing) {
      this.#sealed.set(key, Math.max(attempt, this.#sealed.get(key) ?? 0));
      for (const firing of underWay) firing.voided = true;
    } else if (underWay.length > 0 && chance.hits(0.5)) return pending('under way');
    return notApplied('nothing under its key');
  }

  #behaviour(tool: Fired, key: string, { n, target }: { readonly n: number; readonly target?: Json }): readonly Behaviour[] {
    let known = this.#behaviours.get(key);
    if (known === undefined) this.#behaviours.set(key, (known = scriptOf(this.core.seed, key, tool, n, String(target))));
    return known;
  }
}

/**
 * How the system of record answers a key, call by call. Follows from the seed and the key alone, so
 * that an interrupted run meets the same world as the uninterrupted one. What several runs name
 * always succeeds: else its outcome would depend on who asked first.
 */
export const scriptOf = (seed: string, key: string, tool: Fired, n: number, target: string): readonly Behaviour[] => (n === 0 || target.startsWith(CONTESTED) ? [APPLIES] : script(new Chance(`${seed}/world/${key}`), tool));

export const resultOf = (tool: string, n: number): string => `${tool}:${n}`;

function script(chance: Chance, { name, effect }: Fired): Behaviour[] {
  if (name === GUARDED && chance.hits(0.4)) return [{ does: 'fail', as: 'concurrency_conflict', notApplied: true }];
  if (name === DOUBTFUL && chance.hits(0.4)) return [{ does: 'doubt', applied: chance.hits(0.4) }, APPLIES];
  if (DOUBTED_TWICE.includes(name) && chance.hits(0.2)) return [{ does: 'doubt', applied: false }, { does: 'doubt', applied: chance.hits(0.7) }, APPLIES];
  const applies: Behaviour = { does: 'apply', afterMs: chance.hits(0.05) ? RARELY_SLOW_MS : chance.between(0, 20) };
  const trouble = chance.next();
  if (effect === 'irreversible') {
    if (trouble < 0.06) return [{ does: 'fail', as: 'transient', notApplied: true }, applies];
    if (trouble < 0.1) return [{ does: 'reject' }];
    if (trouble < 0.13) return [{ does: 'fail', as: 'permission_denied', notApplied: true }];
    if (trouble < 0.145) return [{ does: 'doubt', applied: chance.hits(0.5) }, applies];
    if (trouble < 0.17) return [{ does: 'apply', afterMs: 1600 }, applies];
    return [applies];
  }
  if (trouble < 0.1) return [{ does: 'fail', as: 'transient', notApplied: false }, applies];
  if (trouble < 0.13) return [{ does: 'fail', as: 'overloaded', notApplied: true }, { does: 'fail', as: 'transient', notApplied: true }, applies];
  if (trouble < 0.16) return [{ does: 'reject' }];
  if (trouble < 0.19) return [{ does: 'fail', as: 'invalid_request', notApplied: true }];
  if (trouble < 0.22) return [{ does: 'apply', afterMs: 1600 }, applies];
  return [applies];
}
