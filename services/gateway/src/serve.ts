import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { NestFactory } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { systemClock } from '@holdfast/runtime';
import { createWriter, ensureTopics } from '@holdfast/runtime/kafka';
import { openLog, poolOf, type ServiceLog } from '@holdfast/runtime/nest';
import { openTracing, servePages } from '@holdfast/runtime/telemetry';
import type { DataSource } from 'typeorm';
import express from 'express';
import helmet from 'helmet';
import { Answers } from './api/answers.js';
import { STREAM_TOPICS } from './domain/position.js';
import { WebhookFeed } from './hooks/feed.js';
import { WebhookSender } from './hooks/sender.js';
import { sweepDeliveries } from './hooks/sweep.js';
import { serveConsole } from './http/console.js';
import { Idempotency } from './http/idempotency.js';
import { gatewayRegistry } from './metrics.js';
import { GatewayModule } from './module.js';
import { Readiness } from './readiness.js';
import type { GatewaySettings } from './settings.js';
import { openGatewayDatabase } from './store/database.js';
import { LaneReader } from './views/lane-reader.js';
import { FigureRows } from './views/figure-rows.js';
import { SetApart } from './views/set-apart.js';
import { Views } from './views/views.js';

/** Requests under way have this long to end. Milliseconds. */
const DRAIN_MS = 10_000;
/** What is kept for a time is looked through so often. Milliseconds. */
const SWEEP_MS = 10 * 60_000;
const DAY_MS = 24 * 60 * 60_000;

export interface RunningGateway {
  readonly url: string;
  readonly instance: string;
  close(): Promise<void>;
}

/** The gateway's whole process: settings, topics, database, read models, HTTP. `consolePages`: the folder of the console's, where no setting names another. */
export async function serveGateway(settings: GatewaySettings, consolePages: string): Promise<RunningGateway> {
  const brokers = settings.HOLDFAST_BROKERS.split(',').map((broker) => broker.trim());
  const instance = settings.HOLDFAST_INSTANCE ?? `gateway-${randomUUID().slice(0, 8)}`;
  const log = openLog('gateway', instance, settings.HOLDFAST_LOG_LEVEL);
  await ensureTopics(brokers, settings.HOLDFAST_PARTITIONS, settings.HOLDFAST_REPLICATION);
  const database = await openGatewayDatabase(settings.HOLDFAST_DATABASE_URL, `holdfast-${instance}`);
  const writer = await createWriter({ brokers, clientId: instance });
  const tracing = await openTracing('gateway', instance, settings.HOLDFAST_OTLP, (error) => log.warn({ error }, 'spans can’t be delivered, and are dropped'));
  const stopping = new AbortController();
  const source = `holdfast-gateway/${instance}`;
  const apart = new SetApart(writer, source, log);
  const parts = { settings, brokers, log, database, writer, source, stopping: stopping.signal, tracing, apart };
  const app = await NestFactory.create<NestExpressApplication>(GatewayModule.with(parts), { logger: ['error', 'warn'], abortOnError: false, bodyParser: false });
  app.set('query parser', 'simple');
  app.disable('x-powered-by');
  app.set('etag', false);
  app.use(helmet({ contentSecurityPolicy: { useDefaults: false, directives: CSP }, strictTransportSecurity: false, crossOriginEmbedderPolicy: false }));
  // Bytes that are no UTF-8, numbers that a double can't hold and such are refused by readers of our own, so a body stays as it came here.
  app.use(express.raw({ type: ['application/json', 'application/*+json'], limit: settings.HOLDFAST_HTTP_BODY_MAX, inflate: false }));
  serveConsole(app, settings.HOLDFAST_CONSOLE ?? consolePages);
  const views = app.get(Views);
  const hooks = openHooks(settings, database, brokers, log, apart);
  const answers = app.get(Answers);
  await Promise.all([views.start(), answers.start()]);
  hooks?.start();
  await app.listen(settings.HOLDFAST_HTTP_PORT, settings.HOLDFAST_HTTP_HOST);
  const server = app.getHttpServer() as Server;
  const pages = settings.HOLDFAST_HEALTH_PORT === undefined ? null : openPages(settings.HOLDFAST_HEALTH_PORT, instance, app, database, apart);
  const sweeping = setInterval(() => void sweep(settings, app.get(Idempotency), database).catch((error: unknown) => log.warn({ error: error instanceof Error ? error.message : String(error) }, 'what is kept for a time stays a while longer')), SWEEP_MS);

  let closed: Promise<void> | null = null;
  // Readiness off, streams end, requests end, reading ends, and only then the database.
  const close = (): Promise<void> =>
    (closed ??= (async () => {
      stopping.abort();
      clearInterval(sweeping);
      const cancel = systemClock.after(DRAIN_MS, () => server.closeAllConnections());
      await new Promise((resolve) => {
        server.close(resolve);
        server.closeIdleConnections();
      });
      cancel();
      await app.close();
      await Promise.all([views.stop(), answers.stop(), hooks?.stop()]);
      await writer.close();
      await database.destroy();
      pages?.close();
      await tracing?.close();
      log.info('stopped');
    })());
  const { address, port, family } = server.address() as AddressInfo;
  return { url: `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`, instance, close };
}

/** Removes answers and deliveries that were kept for their time. */
async function sweep({ HOLDFAST_WEBHOOK_KEEP_DELIVERED_DAYS: delivered, HOLDFAST_WEBHOOK_KEEP_DEAD_DAYS: dead }: GatewaySettings, idempotency: Idempotency, database: DataSource): Promise<void> {
  await idempotency.sweep();
  await sweepDeliveries(database, { deliveredMs: delivered * DAY_MS, deadMs: dead * DAY_MS }, systemClock.now());
}

/** Health and metrics, away from what the world sees: figures are of all tenants. */
function openPages(port: number, instance: string, app: NestExpressApplication, database: DataSource, apart: SetApart): Server {
  const readiness = app.get(Readiness);
  const ready = (): boolean => readiness.problem === null;
  const registry = gatewayRegistry({ instance, rows: app.get(FigureRows), pool: () => poolOf(database), ready, silentMs: () => app.get(Views).silentMs(), apart: () => apart.count });
  return servePages(port, () => ({ unready: readiness.problem, dead: null, facts: { generation: app.get(Views).generation } }), registry);
}

/** Webhooks, where a secret for them is set. */
function openHooks(settings: GatewaySettings, database: DataSource, brokers: readonly string[], log: ServiceLog, apart: SetApart): { start(): void; stop(): Promise<void> } | null {
  if (settings.HOLDFAST_WEBHOOK_KEY === undefined) return null;
  const sender = new WebhookSender(database, settings.HOLDFAST_WEBHOOK_KEY, log);
  const feed = new WebhookFeed(database, systemClock.now, () => sender.look());
  const reader = new LaneReader({ brokers, groupId: 'holdfast.gateway.webhooks', topics: Object.values(STREAM_TOPICS), sessionTimeoutMs: settings.HOLDFAST_SESSION_TIMEOUT_MS, sink: feed, apart, log });
  return {
    start: () => {
      sender.start();
      void reader.start();
    },
    stop: async () => {
      await reader.stop();
      await sender.stop();
    },
  };
}

/** Pages of the console come from here and load from here alone. */
const CSP = {
  'default-src': ["'self'"],
  'base-uri': ["'none'"],
  'connect-src': ["'self'"],
  'font-src': ["'self'"],
  'form-action': ["'self'"],
  'frame-ancestors': ["'none'"],
  'img-src': ["'self'", 'data:'],
  'object-src': ["'none'"],
  'script-src': ["'self'"],
  // Charts and tables place things by style attributes.
  'style-src': ["'self'", "'unsafe-inline'"],
};
