import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { LoopHealth } from '../loop/loop.js';
import type { LoopObserver, TurnFacts } from '../loop/observer.js';
import type { Lag } from './vitals.js';

/** Connections of a database's pool. */
export interface PoolUse {
  readonly total: number;
  readonly idle: number;
  readonly waiting: number;
}

export interface LoopSources {
  readonly health: () => LoopHealth;
  readonly ready: () => boolean;
  readonly counts: ReadonlyMap<string, number>;
  readonly unpublishedSince: () => number | null;
  readonly lag: () => readonly Lag[];
  readonly lagStuckMs: () => number;
  readonly databaseSilentMs: () => number;
  readonly pool: () => PoolUse;
  readonly now: () => number;
}

/** What is skipped or ignored for these reasons was decided before. */
const SUPPRESSED: ReadonlySet<string> = new Set(['duplicate', 'answered_before', 'command_answered', 'already_settled', 'already_refused', 'already_held', 'already_quarantined', 'recorded_before', 'registered_before', 'opened_before', 'noted_before', 'announced_before', 'announced_again', 'ended_before']);
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10];
const SIZES = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500];

/** A process's own registry, labelled with who it is. */
export function openRegistry(service: string, instance: string): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ service, instance_name: instance });
  collectDefaultMetrics({ register: registry });
  return registry;
}

/** Defines a gauge that is read when somebody asks. */
export function gauge(registry: Registry, name: string, help: string, read: () => number): Gauge {
  return new Gauge({
    ...{ name, help, registers: [registry] },
    collect() {
      this.set(read());
    },
  });
}

/** Measures turns as they are committed; what stands is read when somebody asks. */
export class LoopMetrics implements LoopObserver {
  readonly #parts: Histogram<'part'>;
  readonly #messages: Histogram;
  readonly #written: Histogram;
  readonly #timers: Counter;
  readonly #handled: Counter<'type'>;
  readonly #rows: Counter<'type'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.#parts = new Histogram({ name: 'holdfast_turn_seconds', help: 'Time of one turn of the loop, by its part: decide (load, fold, decide) and commit', labelNames: ['part'], buckets: SECONDS, registers });
    this.#messages = new Histogram({ name: 'holdfast_turn_messages', help: 'Messages that one turn took: the size of a batch', buckets: SIZES, registers });
    this.#written = new Histogram({ name: 'holdfast_turn_rows', help: 'Rows that one commit wrote', buckets: SIZES, registers });
    this.#timers = new Counter({ name: 'holdfast_timers_total', help: 'Streams looked at because their time had come', registers });
    this.#handled = new Counter({ name: 'holdfast_messages_total', help: 'Messages handled, by type', labelNames: ['type'], registers });
    this.#rows = new Counter({ name: 'holdfast_rows_total', help: 'Events and messages written, by type', labelNames: ['type'], registers });
  }

  onTurn({ startedAt, decidedAt, committedAt, messages, timers, lanes }: TurnFacts): void {
    this.#parts.observe({ part: 'decide' }, Math.max(0, decidedAt - startedAt) / 1000);
    this.#parts.observe({ part: 'commit' }, Math.max(0, committedAt - decidedAt) / 1000);
    this.#messages.observe(messages);
    this.#timers.inc(timers);
    let rows = 0;
    for (const lane of lanes) {
      rows += lane.rows.length;
      for (const { type } of lane.rows) this.#rows.inc({ type });
      for (const { headers } of lane.handled) this.#handled.inc({ type: String(headers['ce_type']) });
    }
    this.#written.observe(rows);
  }
}

/** Everything else of a service that runs the loop. */
export function loopGauges(registry: Registry, sources: LoopSources): void {
  const of = (name: string, help: string, read: () => number): unknown => gauge(registry, `holdfast_${name}`, help, read);
  const { health } = sources;
  of('ready', '1 where /readyz says so', () => (sources.ready() ? 1 : 0));
  of('lanes', 'Lanes that this instance holds', () => health().lanes);
  of('lanes_halted', 'Lanes that can’t go on without help', () => health().halted.length);
  of('shelved_runs', 'Runs that rest, since this version can’t read them', () => health().shelved.length);
  of('inbox_messages', 'Messages fetched and not yet taken by a turn', () => health().waiting);
  of('open_streams', 'Streams that are not at rest', () => health().openStreams);
  of('outbox_rows', 'Rows committed and not yet published', () => health().unpublishedRows);
  of('outbox_oldest_seconds', 'Age of the oldest row that is committed and not published', () => {
    const since = sources.unpublishedSince();
    return since === null ? 0 : Math.max(0, sources.now() - since) / 1000;
  });
  of('loop_stuck_seconds', 'How long the turn in hand has lasted', () => health().stuckMs / 1000);
  of('heartbeat_age_seconds', 'How long the broker has not counted this instance in', () => health().silentMs / 1000);
  of('database_silent_seconds', 'How long the database has not answered', () => sources.databaseSilentMs() / 1000);
  of('lag_stuck_seconds', 'How long a lane has had something to read and has decided nothing', () => sources.lagStuckMs() / 1000);
  lagGauge(registry, sources.lag);
  poolGauge(registry, sources.pool);
  countGauges(registry, sources.counts);
}

function lagGauge(registry: Registry, lag: () => readonly Lag[]): void {
  new Gauge({
    ...{ name: 'holdfast_lag_messages', help: 'Messages on a topic that are not decided and committed yet', labelNames: ['topic', 'lane'], registers: [registry] },
    collect() {
      this.reset();
      for (const { topic, lane, messages } of lag()) this.set({ topic, lane }, messages);
    },
  });
}

export function poolGauge(registry: Registry, pool: () => PoolUse): void {
  new Gauge({
    ...{ name: 'holdfast_database_connections', help: 'Connections to the database, and who waits for one', labelNames: ['state'], registers: [registry] },
    collect() {
      const { total, idle, waiting } = pool();
      this.set({ state: 'used' }, total - idle);
      this.set({ state: 'idle' }, idle);
      this.set({ state: 'waiting' }, waiting);
    },
  });
}

/** The loop's own counters, which stand under `what: because`. */
function countGauges(registry: Registry, counts: ReadonlyMap<string, number>): void {
  const counter = (name: string, help: string, labelNames: string[], labels: (key: string) => Record<string, string> | null): void => {
    new Counter({
      ...{ name: `holdfast_${name}`, help, labelNames, registers: [registry] },
      collect() {
        this.reset();
        for (const [key, n] of counts) {
          const found = labels(key);
          if (found !== null) this.inc(found, n);
        }
      },
    });
  };
  const part = (key: string): [string, string] => [key.slice(0, key.indexOf(':')), key.slice(key.indexOf(':') + 2)];
  const only = (what: string, label: string) => (key: string) => (part(key)[0] === what ? { [label]: part(key)[1] } : null);
  counter('decisions_total', 'What was skipped, ignored, refused or parked, with why', ['what', 'because'], (key) => {
    const [what, because] = part(key);
    return what === 'tokens' || what === 'cost' ? null : { what, because };
  });
  counter('suppressed_duplicates_total', 'Messages and wishes that came again and did nothing again', ['because'], (key) => {
    const [what, because] = part(key);
    return (what === 'skipped' || what === 'ignored') && SUPPRESSED.has(because) ? { because } : null;
  });
  counter('parked_total', 'Messages put into dead.letters or refused since nobody can read them', ['reason'], only('parked', 'reason'));
  counter('tokens_total', 'Tokens of recorded model calls: spent (fresh), and not spent again since a resumed run replays them (replayed)', ['steps'], only('tokens', 'steps'));
  counter('cost_total', 'Cost of recorded work, as agents report it: fresh and replayed', ['steps'], only('cost', 'steps'));
}
