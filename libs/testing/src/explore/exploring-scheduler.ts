import { hash32 } from '../sim/chance.js';
import { Scheduler, type About, type Owner } from '../sim/scheduler.js';

interface Pending {
  readonly at: number;
  /** The same event has the same label in every order in which it can come about. */
  readonly label: string;
  readonly owner: Owner | null;
  readonly happen: () => void;
  readonly about: About;
  cancelled: boolean;
}

/** Something that may happen at any moment, once: a rebalance, a republication. */
export interface Action {
  readonly name: string;
  readonly isPossible?: () => boolean;
  readonly act: () => void;
}

/** Chooses among `count` ways; `state` names where the world stands. Returns null to give this way up. */
export type Choose = (count: number, state: string | null) => number | null;

const long = (text: string): string => `${hash32(text).toString(36)}${hash32(`${text}.`).toString(36)}`;

/**
 * Orders chosen from outside: whatever has been sent may arrive next. Time passes only when nothing
 * is under way. What each part of the world has lived through, in order, is its history; two ways
 * to the same histories are the same state, since every part follows from what it has lived through.
 */
export class ExploringScheduler extends Scheduler {
  #pending: Pending[] = [];
  readonly #histories = new Map<string, string>();
  #doing: readonly string[] = ['outside'];
  #made = 0;
  readonly #acted = new Set<string>();

  constructor(
    private readonly choose: Choose,
    private readonly actions: () => readonly Action[],
  ) {
    super();
  }

  override at(time: number, owner: Owner | null, happen: () => void, about: About = {}): () => void {
    this.#made += 1;
    const label = long(`${this.#doing.map((part) => this.#historyOf(part)).join()}/${this.#made}`);
    const pending: Pending = { at: Math.max(time, this.now), label, owner, happen, about, cancelled: false };
    this.#pending.push(pending);
    return () => {
      pending.cancelled = true;
    };
  }

  /** Something was chosen inside a happening: it belongs to the history of who did it. */
  note(what: string): void {
    this.#live(this.#doing, what);
  }

  override run(over: () => boolean, until: number): Promise<'over' | 'empty' | 'late'> {
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

  #step(until: number): 'over' | 'empty' | 'late' | null {
    this.#pending = this.#pending.filter(({ cancelled, owner }) => !cancelled && owner?.alive !== false);
    const soon = this.#pending.find(({ about }) => about.soon === true);
    if (soon !== undefined) return this.#happen(soon);
    const messages = this.#pending.filter(({ about }) => about.timer !== true);
    const possible = this.actions().filter(({ name, isPossible }) => !this.#acted.has(name) && isPossible?.() !== false);
    if (messages.length === 0 && possible.length === 0) {
      const [next] = this.#pending.sort((a, b) => a.at - b.at);
      if (next === undefined) return 'empty';
      if (next.at > until) return 'late';
      return this.#happen(next);
    }
    // Where nothing is under way, an action may also wait for time to pass.
    const waits = messages.length === 0 && this.#pending.length > 0 ? 1 : 0;
    const choice = this.choose(messages.length + possible.length + waits, this.#state());
    if (choice === null) return 'over';
    const message = messages[choice];
    if (message !== undefined) return this.#happen(message);
    const action = possible[choice - messages.length];
    if (action === undefined) {
      const [next] = this.#pending.sort((a, b) => a.at - b.at);
      return next === undefined || next.at > until ? 'late' : this.#happen(next);
    }
    this.#acted.add(action.name);
    this.#do(['outside'], action.name, action.act);
    return null;
  }

  #happen(pending: Pending): null {
    this.#pending.splice(this.#pending.indexOf(pending), 1);
    if (pending.about.timer === true) this.now = Math.max(this.now, pending.at);
    this.steps += 1;
    this.#do([...(pending.owner === null ? [] : [pending.owner.name]), ...(pending.about.in ?? [])], pending.label, pending.happen);
    return null;
  }

  #do(parts: readonly string[], label: string, happen: () => void): void {
    this.#doing = parts.length === 0 ? ['network'] : parts;
    this.#made = 0;
    this.#live(this.#doing, label);
    happen();
  }

  #live(parts: readonly string[], label: string): void {
    const joined = parts.length === 1 ? label : `${label}+${parts.map((part) => this.#historyOf(part)).join()}`;
    for (const part of parts) this.#histories.set(part, long(`${this.#historyOf(part)}|${joined}`));
  }

  #historyOf = (part: string): string => this.#histories.get(part) ?? part;

  #state(): string {
    return [...this.#histories].map(([part, history]) => `${part}=${history}`).sort().join(' ') + [...this.#acted].sort().join();
  }
}
