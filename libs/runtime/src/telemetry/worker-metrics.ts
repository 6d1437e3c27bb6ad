import { Counter, Histogram, type Registry } from 'prom-client';
import { gauge } from './metrics.js';

const SECONDS = [0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300];

/** What a worker did. */
export class WorkerMetrics {
  readonly #fired: Histogram<'tool' | 'outcome'>;
  readonly #probed: Histogram<'tool' | 'answer'>;
  readonly #worked: Histogram<'kind'>;
  readonly #failed: Counter<'kind'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.#fired = new Histogram({ name: 'holdfast_effect_seconds', help: 'Calls of tools that had an end, by tool and outcome', labelNames: ['tool', 'outcome'], buckets: SECONDS, registers });
    this.#probed = new Histogram({ name: 'holdfast_probe_seconds', help: 'Probes, by tool and answer', labelNames: ['tool', 'answer'], buckets: SECONDS, registers });
    this.#worked = new Histogram({ name: 'holdfast_work_seconds', help: 'Recorded work that was done here and not replayed: model calls and steps', labelNames: ['kind'], buckets: SECONDS, registers });
    this.#failed = new Counter({ name: 'holdfast_work_failures_total', help: 'Recorded work that failed', labelNames: ['kind'], registers });
  }

  /** Times in milliseconds. */
  fired(tool: string, outcome: string, tookMs: number): void {
    this.#fired.observe({ tool, outcome }, Math.max(0, tookMs) / 1000);
  }

  probed(tool: string, answer: string, tookMs: number): void {
    this.#probed.observe({ tool, answer }, Math.max(0, tookMs) / 1000);
  }

  worked(kind: string, failed: boolean, tookMs: number): void {
    this.#worked.observe({ kind }, Math.max(0, tookMs) / 1000);
    if (failed) this.#failed.inc({ kind });
  }
}

interface Standing {
  readonly lanes: number;
  readonly runs: number;
  readonly inFlight: number;
  readonly unwritten: number;
  readonly silentMs: number;
  readonly ready: boolean;
}

/** How a worker stands, read when somebody asks. */
export function workerGauges(registry: Registry, standing: () => Standing): void {
  gauge(registry, 'holdfast_ready', '1 where /readyz says so', () => (standing().ready ? 1 : 0));
  gauge(registry, 'holdfast_lanes', 'Lanes that this worker holds', () => standing().lanes);
  gauge(registry, 'holdfast_worker_runs', 'Runs that are executed here', () => standing().runs);
  gauge(registry, 'holdfast_worker_effects_in_flight', 'Effects that were called and have no end yet', () => standing().inFlight);
  gauge(registry, 'holdfast_worker_unwritten_messages', 'Messages that Kafka has not taken yet', () => standing().unwritten);
  gauge(registry, 'holdfast_heartbeat_age_seconds', 'How long the broker has not counted this worker in', () => standing().silentMs / 1000);
}
