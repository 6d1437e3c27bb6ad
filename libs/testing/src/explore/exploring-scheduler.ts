import { createHash } from 'node:crypto';
import { Scheduler, type About, type Owner, type Reader } from '../sim/scheduler.js';

/** A question that changes nothing, with every answer that it could have had since it was asked. */
interface Read {
  readonly look: () => unknown;
  readonly hear: (answer: unknown) => void;
  readonly answers: Map<string, unknown>;
}

interface Pending {
  readonly at: number;
  /** How long it was to wait when it was made, milliseconds. */
  readonly forMs: number;
  readonly name: string;
  readonly owner: Owner | null;
  readonly happen: () => void;
  readonly about: About;
  /** Those that were asked in one breath: they are answered together. */
  readonly reads: Read[];
  cancelled: boolean;
  /** Held up: it may arrive at any moment, and time passes meanwhile. */
  held: boolean;
}

/** What the product's code in a process has heard: all of it, in its order and at its times. */
interface Code {
  heard: string;
  /** How much it has asked since. */
  asked: number;
  /** What it reads in this breath. */
  reading: Pending | null;
}

/** Something that may happen at any moment, once: a rebalance, a republication. */
export interface Action {
  readonly name: string;
  readonly isPossible?: () => boolean;
  readonly act: () => void;
}

/** Chooses among `count` ways; `state` names where the world stands, where that has a name. Returns null to give this way up. */
export type Choose = (count: number, state: (() => string) | null) => number | null;

/** What the orders are taken from. */
export interface Explorable {
  readonly choose: Choose;
  readonly actions: () => readonly Action[];
  /** Where everything stands that is no code of the product's, in words. */
  readonly standing: () => string;
  /** How many messages may be held up while time passes. */
  readonly holds: () => number;
}

type End = 'over' | 'empty' | 'late';

/** A timer that waits for longer belongs to what goes on for ever: signs of life, patience with a silent group. */
const FAR_MS = 5000;

const short = (text: string): string => createHash('sha1').update(text).digest('base64url').slice(0, 20);

/** What an answer says, in words: two that say the same are the same to whoever hears them. */
const inWords = (value: unknown): string => JSON.stringify(value, (_, part: unknown) => (part instanceof Map || part instanceof Set ? [...(part as Iterable<unknown>)] : part instanceof Error ? part.message : part)) ?? '';

/** Every way to take one from each. */
const oneOfEach = <T>(lists: readonly (readonly T[])[]): T[][] => lists.reduce<T[][]>((ways, list) => ways.flatMap((way) => list.map((one) => [...way, one])), [[]]);

/**
 * Orders chosen from outside: whatever is under way may arrive next, whatever is due may fire next,
 * and what was read may be what held at any moment since it was asked. Time passes only when nothing
 * is under way but what was held up. A state is where the simulated servers stand, what is under way,
 * and everything that the product's code in each process has heard: what it is follows from that.
 */
export class ExploringScheduler extends Scheduler implements Reader {
  #pending: Pending[] = [];
  readonly #codes = new Map<Owner, Code>();
  readonly #acted = new Set<string>();
  #held = 0;

  constructor(private readonly explorable: Explorable) {
    super();
  }

  override get reader(): Reader {
    return this;
  }

  override at(time: number, owner: Owner | null, happen: () => void, about: About = {}): () => void {
    const pending = this.#add(time, owner, happen, about);
    return () => {
      pending.cancelled = true;
    };
  }

  read<T>(owner: Owner, { name, unheard }: { readonly name: string; readonly unheard: boolean }, look: () => T, hear: (answer: T) => void): void {
    const code = this.#codeOf(owner);
    let pending = unheard ? null : code.reading;
    if (pending === null) {
      pending = this.#add(this.now, owner, () => undefined, { name, unheard });
      if (!unheard) code.reading = pending;
    }
    pending.reads.push({ look, hear: hear as (answer: unknown) => void, answers: new Map() });
  }

  override latency(): number {
    return 1;
  }

  override nameFor(owner: Owner): string {
    const code = this.#codeOf(owner);
    code.asked += 1;
    return `${code.heard}/${code.asked}`;
  }

  override nameOf(asked: string, answer: unknown): string {
    return `${asked}=${short(inWords(answer))}`;
  }

  override tell(owner: Owner, what: () => string): void {
    const code = this.#codeOf(owner);
    Object.assign(code, { heard: short(`${code.heard}|${this.now}|${what()}`), asked: 0, reading: null } satisfies Code);
  }

  /** Nothing is under way, and nothing may come: time alone goes on. */
  isStill(): boolean {
    return this.#possible().length === 0 && this.#live().every(({ about, held }) => about.timer === true && !held);
  }

  /** The product's code waits for nothing that is near. */
  isIdle(): boolean {
    return this.#live().every(({ owner, about, forMs }) => owner === null || about.unheard === true || forMs >= FAR_MS);
  }

  override run(over: () => boolean, until: number): Promise<End> {
    return new Promise((resolve, reject) => {
      const step = (): void => {
        try {
          if (over()) return resolve('over');
          const end = this.#step(until);
          if (end !== null) return resolve(end);
        } catch (error) {
          return reject(error instanceof Error ? error : new Error(String(error)));
        }
        queueMicrotask(() => process.nextTick(step));
      };
      setImmediate(step);
    });
  }

  #step(until: number): End | null {
    const live = this.#live();
    const isDue = ({ about, at }: Pending): boolean => about.timer !== true || at <= this.now;
    this.#look(live);
    const soon = live.find((pending) => pending.about.soon === true && isDue(pending));
    if (soon !== undefined) return this.#happen(soon);
    const ready = live.filter((pending) => !pending.held && isDue(pending));
    const held = live.filter((pending) => pending.held);
    const waiting = live.filter((pending) => !isDue(pending));
    const ways: (() => 'late' | null)[] = [
      ...[...ready, ...held].flatMap((pending) => this.#arrivals(pending)),
      ...this.#possible().map((action) => () => this.#act(action)),
      ...(ready.length === 0 && waiting.length > 0 ? [() => this.#wait(waiting, until)] : []),
      ...(this.#held < this.explorable.holds() ? ready.filter(({ about }) => about.timer !== true && about.unheard !== true).map((pending) => () => this.#hold(pending)) : []),
    ];
    const [only] = ways;
    if (only === undefined) return 'empty';
    if (ways.length === 1) return only();
    const choice = this.explorable.choose(ways.length, () => this.#state());
    return choice === null ? 'over' : (ways[choice] ?? only)();
  }

  #add(time: number, owner: Owner | null, happen: () => void, about: About): Pending {
    const name = about.name ?? (owner === null ? undefined : this.nameFor(owner));
    if (name === undefined) throw new Error('what happens of itself in an explored world needs a name');
    const at = Math.max(time, this.now);
    const pending: Pending = { at, forMs: at - this.now, name, owner, happen, about, reads: [], cancelled: false, held: false };
    this.#pending.push(pending);
    return pending;
  }

  #live(): Pending[] {
    this.#pending = this.#pending.filter(({ cancelled, owner }) => !cancelled && owner?.alive !== false);
    return this.#pending;
  }

  #possible(): Action[] {
    return this.explorable.actions().filter(({ name, isPossible }) => !this.#acted.has(name) && isPossible?.() !== false);
  }

  /** Notes what each question would be answered now. */
  #look(live: readonly Pending[]): void {
    for (const { reads } of live) {
      for (const { look, answers } of reads) {
        const answer = look();
        const words = inWords(answer);
        if (!answers.has(words)) answers.set(words, answer);
      }
    }
  }

  #arrivals(pending: Pending): (() => null)[] {
    const { reads } = pending;
    if (reads.length === 0) return [() => this.#happen(pending)];
    return oneOfEach(reads.map(({ answers }) => [...answers])).map((answers) => () => this.#happen(pending, answers));
  }

  #happen(pending: Pending, answers: readonly (readonly [string, unknown])[] = []): null {
    const { owner, about, name, reads } = pending;
    this.#pending.splice(this.#pending.indexOf(pending), 1);
    this.steps += 1;
    if (owner !== null && about.unheard !== true) this.tell(owner, () => [name, ...answers.map(([words]) => words)].join());
    pending.happen();
    reads.forEach(({ hear }, index) => hear(answers[index]?.[1]));
    return null;
  }

  #act({ name, act }: Action): null {
    this.#acted.add(name);
    act();
    return null;
  }

  #wait(waiting: readonly Pending[], until: number): 'late' | null {
    const next = Math.min(...waiting.map(({ at }) => at));
    if (next > until) return 'late';
    this.now = next;
    return null;
  }

  #hold(pending: Pending): null {
    pending.held = true;
    this.#held += 1;
    return null;
  }

  #codeOf(owner: Owner): Code {
    let code = this.#codes.get(owner);
    if (code === undefined) this.#codes.set(owner, (code = { heard: owner.name, asked: 0, reading: null }));
    return code;
  }

  #state(): string {
    const codes = [...this.#codes].filter(([{ alive }]) => alive).map(([{ name }, { heard }]) => `${name}=${heard}`).sort();
    const pending = this.#pending.map(({ name, about, at, held, reads }) => `${name}${about.timer === true ? `@${at}` : ''}${held ? ' held' : ''}${reads.map(({ answers }) => [...answers.keys()].sort().join('|')).join()}`).sort();
    return short(`${this.now}\n${codes.join()}\n${pending.join()}\n${[...this.#acted].sort().join()}\n${this.#held}\n${this.explorable.standing()}`);
  }
}
