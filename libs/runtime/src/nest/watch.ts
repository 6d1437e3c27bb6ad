import type { Server } from 'node:http';
import type { DataSource } from 'typeorm';
import type { Logger } from 'pino';
import { createEndsReader, type EndsReader } from '../kafka/index.js';
import type { Loop } from '../loop/loop.js';
import type { LoopObserver } from '../loop/observer.js';
import { systemClock } from '../system.js';
import { LoopMetrics, loopGauges, LoopTracer, openRegistry, openTracing, servePages, together, Vitals, type PoolUse } from '../telemetry/index.js';
import { healthOf, type Around } from './health.js';
import { noting } from './noted.js';
import type { ServiceSettings } from './settings.js';

/** What the watch looks at of a loop. */
type Watched = Pick<Loop<never, never>, 'health' | 'counts' | 'reached' | 'unpublishedSince'>;

export interface Watch {
  readonly observer: LoopObserver | undefined;
  /** Serves health and metrics, where a port is set. */
  serve(loop: Watched, topics: readonly string[]): void;
  /** Readiness off. */
  leave(): void;
  /** Sends what is left of traces. */
  close(): Promise<void>;
}

/** Connections of a data source, as the driver's pool counts them. */
export function poolOf(database: DataSource): PoolUse {
  const { master } = database.driver as unknown as { master?: { readonly totalCount: number; readonly idleCount: number; readonly waitingCount: number } };
  return { total: master?.totalCount ?? 0, idle: master?.idleCount ?? 0, waiting: master?.waitingCount ?? 0 };
}

/** Traces, metrics, health and notes of a service that runs the loop: each only where it is asked for. */
export async function watch({ settings, brokers, instance, log, database }: { readonly settings: ServiceSettings; readonly brokers: readonly string[]; readonly instance: string; readonly log: Logger; readonly database: DataSource }, name: string): Promise<Watch> {
  const port = settings.HOLDFAST_HEALTH_PORT;
  const tracing = await openTracing(name, instance, settings.HOLDFAST_OTLP, (error) => log.warn({ error }, 'spans can’t be delivered, and are dropped'));
  const registry = port === undefined ? null : openRegistry(name, instance);
  let vitals: Vitals | null = null;
  let server: Server | null = null;
  let ends: EndsReader | null = null;
  return {
    observer: together([noting(log), ...(registry === null ? [] : [new LoopMetrics(registry)]), ...(tracing === null ? [] : [new LoopTracer(name, tracing)])]),
    serve: (loop, topics) => {
      if (port === undefined || registry === null) return;
      const reader = createEndsReader({ brokers, clientId: instance });
      ends = reader;
      const looking = new Vitals({ clock: systemClock, ping: () => database.query('select 1'), topics, ends: (topic) => reader.ends(topic), reached: () => loop.reached() });
      vitals = looking;
      looking.start();
      const around = (): Around => ({ databaseSilentMs: looking.databaseSilentMs(), lagStuckMs: looking.lagStuckMs() });
      const health = (): ReturnType<typeof healthOf> => healthOf(loop.health(), around(), settings.HOLDFAST_UNREADY_AFTER_MS);
      loopGauges(registry, {
        health: () => loop.health(),
        ready: () => health().unready === null,
        counts: loop.counts,
        unpublishedSince: () => loop.unpublishedSince(),
        lag: () => looking.lag,
        lagStuckMs: () => looking.lagStuckMs(),
        databaseSilentMs: () => looking.databaseSilentMs(),
        pool: () => poolOf(database),
        now: () => systemClock.now(),
      });
      server = servePages(port, health, registry);
    },
    leave: () => {
      vitals?.stop();
      server?.close();
    },
    close: async () => {
      await Promise.all([ends?.close(), tracing?.close()]);
    },
  };
}
