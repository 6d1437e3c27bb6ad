import type { Clock } from '@holdfast/runtime';
import { Chance } from './chance.js';
import type { ProcessKind, Site, SiteFault } from './faults.js';
import type { Core } from './core.js';

/** What a process hears where the network or a server failed it. Code: what PostgreSQL would say. */
export class SimFailure extends Error {
  override readonly name = 'SimFailure';
  constructor(
    message: string,
    readonly code?: string,
  ) {
    super(message);
  }
}

const never = <T>(): Promise<T> => new Promise<T>(() => undefined);
const SLOW_MS = 1000;
const TIMEOUT_MS = 400;
const LATE_MS = 2500;

export interface Ask<T> {
  readonly site: Site;
  /** Which server it goes to: one that is out answers nothing. */
  readonly server: string;
  /** The messages that it is about; asked only when a fault may meet it. */
  readonly texts?: () => Iterable<string>;
  /** What it is called where the process's code hears nothing of it. */
  readonly unheard?: string;
  /** It changes nothing at the server, or nothing but when its asker was seen last. */
  readonly reads?: boolean;
  /** Nobody else in its world looks at what it does: when it does it, matters to nobody. */
  readonly unseen?: boolean;
  /** What it does at the server. */
  readonly apply: () => T | Promise<T>;
}

/** A process of the simulation: a clock, chance, and asks that may fail. What it does once dead, nobody sees. */
export class SimProcess {
  alive = true;
  frozenUntil = 0;
  /** The group's coordinator can't be reached until then. */
  cutOffUntil = 0;
  skewMs = 0;
  readonly chance: Chance;
  readonly clock: Clock;
  readonly #asks = new Map<Site, number>();
  readonly #onDeath: (() => void)[] = [];
  /** Where each simulated part of it stands, in words. */
  readonly parts: (() => string)[] = [];

  constructor(
    readonly core: Core,
    readonly kind: ProcessKind,
    readonly name: string,
  ) {
    this.chance = new Chance(`${core.seed}/process/${name}`);
    const { scheduler } = core;
    this.clock = {
      now: () => Math.floor(scheduler.now + this.skewMs),
      after: (delayMs, callback) => scheduler.at(scheduler.now + Math.max(0, delayMs), this, callback, { timer: true }),
      soon: (callback) => void scheduler.at(scheduler.now, this, callback, { soon: true }),
    };
  }

  onDeath(tell: () => void): void {
    this.#onDeath.push(tell);
  }

  crash(because: string): void {
    if (!this.alive) return;
    this.alive = false;
    this.core.trace(this.name, `dies: ${because}`);
    for (const tell of this.#onDeath) tell();
    this.core.died(this);
  }

  /** Time of one way, milliseconds. */
  latency(): number {
    return this.core.scheduler.latency(this.chance);
  }

  /** A fault at this ask, if one is planned. */
  fault(site: Site, texts: (() => Iterable<string>) | undefined): SiteFault | null {
    const nth = (this.#asks.get(site) ?? 0) + 1;
    this.#asks.set(site, nth);
    return this.core.faultAt({ process: this.name, kind: this.kind, site, nth }, texts);
  }

  /** Asks a server over the network. */
  ask<T>({ site, server, unheard, texts, reads = false, unseen = false, apply }: Ask<T>): Promise<T> {
    if (!this.alive) return never();
    const fault = this.fault(site, texts);
    if (fault === 'crash_before') {
      this.crash(`before ${site}`);
      return never();
    }
    const { scheduler } = this.core;
    const go = fault === 'slow' ? SLOW_MS : this.latency();
    const back = this.latency();
    const name = `${unheard === undefined ? scheduler.nameFor(this) : `${this.name} ${unheard}`} ${site} ${fault ?? ''}`;
    const about = unheard === undefined ? {} : { unheard: true };
    const { reader } = scheduler;
    if (reader !== null && reads) return new Promise<T>((resolve) => reader.read(this, { name, unheard: unheard !== undefined }, apply, resolve as (answer: T | Promise<T>) => void));
    return new Promise<T>((resolve, reject) => {
      const hear = (delayMs: number, said: unknown, what: () => void): void => void scheduler.at(scheduler.now + delayMs, this, what, { ...about, name: scheduler.nameOf(name, said) });
      const fail = (delayMs: number, message: string): void => hear(delayMs, message, () => reject(new SimFailure(message)));
      const arrive = (answer: (value: T) => void): void => {
        try {
          const value = apply();
          if (value instanceof Promise) value.then(answer, (error: unknown) => hear(back, error, () => reject(error instanceof Error ? error : new Error(String(error)))));
          else answer(value);
        } catch (error) {
          hear(back, error, () => reject(error instanceof Error ? error : new Error(String(error))));
        }
      };
      if (fault === 'refused') return fail(go + back, `${site}: the connection was refused`);
      if (fault === 'late') {
        const heardMs = this.core.plan.lateHeardMs ?? TIMEOUT_MS;
        fail(heardMs, `${site}: no answer in time`);
        scheduler.at(scheduler.now + this.chance.between(this.core.plan.lateAfterMs ?? heardMs, this.core.plan.lateWithinMs ?? LATE_MS), null, () => arrive(() => undefined), { name: `${name} late` });
        return;
      }
      scheduler.at(scheduler.now + go, null, () => {
        if (this.core.isOut(server) || (this.cutOffUntil > scheduler.now && server === 'coordinator')) return fail(TIMEOUT_MS, `${server} can't be reached`);
        if (fault === 'doubled') arrive(() => undefined);
        arrive((value) => {
          if (fault === 'crash_after') this.crash(`after ${site}`);
          else if (fault === 'lost_ack') fail(TIMEOUT_MS, `${site}: the answer was lost`);
          else hear(back, value, () => resolve(value));
        });
      }, { ...about, name, soon: unseen && fault === null });
    });
  }
}
