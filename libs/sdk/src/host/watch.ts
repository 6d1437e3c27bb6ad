import { traceOf } from '@holdfast/protocol';
import type { Tracing } from '@holdfast/runtime/telemetry';
import { systemClock } from '@holdfast/runtime/system';
import type { WorkerLog } from './log.js';
import { observers, type HostObserver } from './observer.js';

/** How a worker stands, for its health and metrics. */
export interface WorkerFacts {
  readonly lanes: number;
  readonly runs: number;
  /** Effects and probes under way. */
  readonly inFlight: number;
  /** Messages that Kafka has not taken yet. */
  readonly unwritten: number;
  /** How long ago the group last counted this worker in, milliseconds; null while it does not. */
  readonly heartbeatAgeMs: number | null;
}

export interface Watching {
  readonly observer: HostObserver | undefined;
  /** Serves /healthz, /readyz and /metrics, where a port is set. */
  serve(facts: () => WorkerFacts): void;
  close(): Promise<void>;
}

export interface WatchOptions {
  readonly worker: string;
  /** Base address of an OTLP/HTTP receiver; none where absent. */
  readonly otlp: string | undefined;
  readonly healthPort: number | undefined;
  readonly sessionTimeoutMs: number;
  readonly log: WorkerLog;
}

/** A worker that the group has not counted in for so many session time-outs is not ready. */
const SILENT_SESSIONS = 3;

/** Traces and metrics of a worker; what nobody asks for is never loaded. */
export async function watchWorker({ worker, otlp, healthPort, sessionTimeoutMs, log }: WatchOptions): Promise<Watching> {
  if ((otlp === undefined || otlp === '') && healthPort === undefined) return { observer: undefined, serve: () => undefined, close: () => Promise.resolve() };
  const telemetry = await import('@holdfast/runtime/telemetry');
  const { HostSpans } = await import('./spans.js');
  const tracing: Tracing | null = await telemetry.openTracing('worker', worker, otlp, (error) => log.warn('spans can’t be delivered, and are dropped', { error }));
  const registry = healthPort === undefined ? null : telemetry.openRegistry('worker', worker);
  const metrics = registry === null ? null : new telemetry.WorkerMetrics(registry);
  let closePages: () => void = () => undefined;
  const measured: HostObserver[] = metrics === null ? [] : [{
    onFired: ({ tool }, startedAt, status) => metrics.fired(tool.name, status, systemClock.now() - startedAt),
    onProbed: ({ data }, startedAt, status) => metrics.probed(data.tool.name, status, systemClock.now() - startedAt),
    onWorked: ({ kind, failed, startedAt }) => metrics.worked(kind, failed, systemClock.now() - startedAt),
  }];
  return {
    observer: observers([...(tracing === null ? [] : [new HostSpans(tracing, systemClock.now)]), ...measured]),
    serve: (facts) => {
      if (healthPort === undefined || registry === null) return;
      let heardAt = systemClock.now();
      const silentMs = (): number => {
        const age = facts().heartbeatAgeMs;
        const now = systemClock.now();
        if (age !== null) heardAt = Math.max(heardAt, now - age);
        return now - heardAt;
      };
      // Looked at by itself too: else a page that is asked for seldom would take a pause for a silence.
      const looking = setInterval(silentMs, sessionTimeoutMs / 2).unref();
      const unready = (): string | null => (silentMs() > sessionTimeoutMs * SILENT_SESSIONS ? `the broker has not counted this worker in for ${silentMs()} ms` : null);
      telemetry.workerGauges(registry, () => ({ ...facts(), silentMs: silentMs(), ready: unready() === null }));
      const server = telemetry.servePages(healthPort, () => ({ unready: unready(), dead: null, facts: facts() }), registry);
      closePages = () => {
        clearInterval(looking);
        server.close();
      };
    },
    close: async () => {
      closePages();
      await tracing?.close();
    },
  };
}

/** Lines that name a run carry its trace. */
export const tracedLog = (log: WorkerLog): WorkerLog => {
  const line = (level: keyof WorkerLog): WorkerLog['info'] => (message, about = {}) => log[level](message, typeof about['run'] === 'string' ? { ...about, trace: traceOf(about['run']) } : about);
  return { info: line('info'), warn: line('warn'), error: line('error') };
};
