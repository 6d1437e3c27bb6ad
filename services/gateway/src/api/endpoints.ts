import type { Type } from '@nestjs/common';
import type { Endpoint } from '../http/endpoint.js';
import { assignCase, CasesController, getCase, listCases, resolveCase } from './cases.js';
import { EventsController, listRunEvents, streamEvents } from './events.js';
import { getRun, listEffects, listRuns, listSteps, RunsController, startRun } from './runs.js';
import { FiguresController, getFigures } from './figures.js';
import { listContracts, listDeadLetters, listWorkers, RecordsController, redrive } from './records.js';
import { healthz, openapi, readyz, ServiceController } from './service.js';
import { createWebhook, listDeliveries, listWebhooks, redeliver, removeWebhook, WebhooksController, webhookSecret } from './webhooks.js';

/** Every address there is: what is not here is not served. */
export const endpoints = [
  startRun,
  listRuns,
  getRun,
  listRunEvents,
  listSteps,
  listEffects,
  streamEvents,
  listCases,
  getCase,
  assignCase,
  resolveCase,
  listContracts,
  listWorkers,
  listDeadLetters,
  redrive,
  getFigures,
  createWebhook,
  listWebhooks,
  webhookSecret,
  removeWebhook,
  listDeliveries,
  redeliver,
  healthz,
  readyz,
  openapi,
] as unknown as readonly Endpoint[];

export const controllers: readonly Type[] = [RunsController, EventsController, CasesController, RecordsController, FiguresController, WebhooksController, ServiceController];
