import { Module, type DynamicModule, type Provider } from '@nestjs/common';
import { APP_FILTER, APP_GUARD, APP_INTERCEPTOR } from '@nestjs/core';
import type { LogWriter } from '@holdfast/runtime';
import { systemClock } from '@holdfast/runtime';
import type { ServiceLog } from '@holdfast/runtime/nest';
import type { Tracing } from '@holdfast/runtime/telemetry';
import type { DataSource } from 'typeorm';
import { Audit } from './access/audit.js';
import { Keys } from './access/keys.js';
import { Oidc } from './access/oidc.js';
import { Answers } from './api/answers.js';
import { HOUSE } from './api/brakes.js';
import { Commands } from './api/commands.js';
import { controllers, endpoints } from './api/endpoints.js';
import { Queries } from './api/queries.js';
import { WRITER } from './api/records.js';
import { TRACE_URL } from './api/service.js';
import { DATABASE, WEBHOOK_KEY } from './api/webhooks.js';
import { ProblemFilter } from './http/filter.js';
import { AccessGuard, Authentication } from './http/guard.js';
import { Idempotency } from './http/idempotency.js';
import { AnswerInterceptor } from './http/interceptor.js';
import { describe } from './http/openapi.js';
import { Readiness } from './readiness.js';
import type { GatewaySettings } from './settings.js';
import { FigureRows } from './views/figure-rows.js';
import type { SetApart } from './views/set-apart.js';
import { Views } from './views/views.js';

/** What is opened before the application, and closed after it. */
export interface Parts {
  readonly settings: GatewaySettings;
  readonly brokers: readonly string[];
  readonly log: ServiceLog;
  readonly database: DataSource;
  readonly writer: LogWriter;
  readonly source: string;
  /** Aborted when the gateway begins to stop. */
  readonly stopping: AbortSignal;
  readonly tracing: Tracing | null;
  readonly apart: SetApart;
}

export const API_VERSION = '1.0.0';

@Module({})
export class GatewayModule {
  static with({ settings, brokers, log, database, writer, source, stopping, tracing, apart }: Parts): DynamicModule {
    const { now } = systemClock;
    const rates = { perMinute: settings.HOLDFAST_HTTP_RATE, refusedPerMinute: settings.HOLDFAST_HTTP_REFUSED_RATE };
    const providers: Provider[] = [
      { provide: Keys, useFactory: () => new Keys(database, now) },
      { provide: Views, useFactory: () => new Views(database, { brokers, apart, sessionTimeoutMs: settings.HOLDFAST_SESSION_TIMEOUT_MS, log }) },
      { provide: Answers, useFactory: () => new Answers(brokers, log) },
      { provide: Readiness, inject: [Views], useFactory: (views: Views) => new Readiness(views, stopping, settings.HOLDFAST_UNREADY_AFTER_MS) },
      { provide: FigureRows, inject: [Views], useFactory: (views: Views) => new FigureRows(views) },
      { provide: Queries, inject: [Views], useFactory: (views: Views) => new Queries(views) },
      { provide: Commands, inject: [Answers, Queries, Views], useFactory: (answers: Answers, queries: Queries, views: Views) => new Commands(writer, source, now, answers, queries, views) },
      { provide: Audit, useFactory: () => new Audit(writer, source, now) },
      { provide: Idempotency, useFactory: () => new Idempotency(database) },
      { provide: Authentication, inject: [Keys], useFactory: (keys: Keys) => new Authentication(keys, settings.oidc === null ? null : new Oidc(settings.oidc), rates) },
      { provide: DATABASE, useValue: database },
      { provide: WRITER, useValue: writer },
      { provide: WEBHOOK_KEY, useValue: settings.HOLDFAST_WEBHOOK_KEY ?? null },
      { provide: 'brokers', useValue: brokers },
      { provide: HOUSE, useValue: settings.HOLDFAST_HOUSE_TENANT },
      { provide: TRACE_URL, useValue: settings.HOLDFAST_TRACE_URL ?? null },
      { provide: 'lanes', useValue: settings.HOLDFAST_PARTITIONS },
      { provide: 'stopping', useValue: stopping },
      { provide: 'description', useFactory: () => describe(endpoints, API_VERSION) },
      { provide: APP_GUARD, inject: [Authentication], useFactory: (authentication: Authentication) => new AccessGuard(authentication, rates) },
      {
        provide: APP_INTERCEPTOR,
        inject: [Idempotency, Authentication, Audit],
        useFactory: (idempotency: Idempotency, authentication: Authentication, audit: Audit) => new AnswerInterceptor(idempotency, authentication, audit, stopping, tracing),
      },
      { provide: APP_FILTER, useFactory: () => new ProblemFilter(log, endpoints) },
    ];
    return { module: GatewayModule, controllers: [...controllers], providers };
  }
}
