import type { LogRecord } from '@holdfast/runtime';
import { EffectIndex } from './effects.js';
import { BEGINNING, Scheduler } from './scheduler.js';
import type { Asked, Fault, FaultPlan, SiteFault } from './faults.js';
import { cellOf, type Cell } from './faults.js';
import type { SimProcess } from './process.js';

export interface TraceLine {
  /** Milliseconds from the beginning. */
  readonly ms: number;
  readonly who: string;
  readonly what: string;
}

/** What everything in one simulated world shares: time, the faults, and the story. */
export class Core {
  /** Faults that came, in order. */
  readonly faults: Fault[] = [];
  readonly cells = new Set<Cell>();
  readonly story: TraceLine[] = [];
  readonly effects = new EffectIndex();
  readonly violations: string[] = [];
  onDied: (process: SimProcess) => void = () => undefined;
  /** Told of what a service's turn has handled, once it has led to rows and is committed. */
  onHandled: (service: string, records: readonly LogRecord[]) => void = () => undefined;
  readonly #outUntil = new Map<string, number>();

  constructor(
    readonly seed: string,
    readonly plan: FaultPlan,
    private readonly tracing: boolean,
    readonly scheduler: Scheduler = new Scheduler(),
  ) {}

  get elapsedMs(): number {
    return this.scheduler.now - BEGINNING;
  }

  trace(who: string, what: string | (() => string)): void {
    if (this.tracing) this.story.push({ ms: Math.round(this.elapsedMs * 1000) / 1000, who, what: typeof what === 'string' ? what : what() });
  }

  violated(invariant: string, what: string): void {
    this.trace('!', `${invariant}: ${what}`);
    this.violations.push(`${invariant}: ${what}`);
  }

  died(process: SimProcess): void {
    this.onDied(process);
  }

  faultAt(asked: Asked, texts: (() => Iterable<string>) | undefined): SiteFault | null {
    const kind = this.plan.at(asked, this.elapsedMs, texts);
    if (kind === null) return null;
    this.faults.push({ at: 'site', process: asked.process, site: asked.site, nth: asked.nth, kind });
    for (const effect of texts === undefined ? ['any' as const] : this.effects.in(texts())) this.cells.add(cellOf(kind, asked.kind, asked.site, effect));
    this.trace('fault', `${kind} at ${asked.site} of ${asked.process}`);
    return kind;
  }

  takeOut(server: string, forMs: number): void {
    this.#outUntil.set(server, Math.max(this.#outUntil.get(server) ?? 0, this.scheduler.now + forMs));
  }

  /** Servers: `broker` (with its `coordinator`), and a store for each service. */
  isOut(server: string): boolean {
    const until = Math.max(this.#outUntil.get(server) ?? 0, server === 'coordinator' ? (this.#outUntil.get('broker') ?? 0) : 0);
    return until > this.scheduler.now;
  }
}
