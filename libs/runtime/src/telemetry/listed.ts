import { Registry } from 'prom-client';
import { LoopMetrics, loopGauges } from './metrics.js';
import { WorkerMetrics, workerGauges } from './worker-metrics.js';

export interface ListedMetric {
  readonly name: string;
  readonly kind: string;
  readonly labels: readonly string[];
  readonly help: string;
  /** Who serves it. */
  readonly of: 'service' | 'worker' | 'both';
}

const never = (): never => {
  throw new Error('only listed, never read');
};

/** All metrics of services that run the loop, and of workers, as the code defines them: for the reference. */
export function listMetrics(): ListedMetric[] {
  const service = new Registry();
  new LoopMetrics(service);
  loopGauges(service, { health: never, ready: never, counts: new Map(), unpublishedSince: never, lag: never, lagStuckMs: never, databaseSilentMs: never, pool: never, now: never });
  const worker = new Registry();
  new WorkerMetrics(worker);
  workerGauges(worker, never);
  const listed = new Map<string, ListedMetric>();
  for (const [of, registry] of [['service', service], ['worker', worker]] as const) {
    for (const metric of registry.getMetricsAsArray()) {
      const { labelNames = [] } = metric as unknown as { labelNames?: string[] };
      listed.set(metric.name, { name: metric.name, kind: metric.constructor.name.toLowerCase(), labels: labelNames, help: metric.help, of: listed.has(metric.name) ? 'both' : of });
    }
  }
  return [...listed.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}
