import type { Type } from '@nestjs/common';
import type { Endpoint } from '../http/endpoint.js';
import { ActsController, cancelRun, pauseRun, releaseRun, resumeRun, signalRun } from './acts.js';
import { approve, ApprovalsController, getApproval, listApprovals, reject } from './approvals.js';
import { callback, CallbacksController } from './callbacks.js';
import { assignCase, CasesController, getCase, listCases, resolveCase } from './cases.js';
import { EventsController, listRunEvents, streamEvents } from './events.js';
import { getRun, listEffects, listRuns, listSteps, RunsController, startRun } from './runs.js';
import { FiguresController, getFigures } from './figures.js';
import { listContracts, listDeadLetters, listWorkers, RecordsController, redrive } from './records.js';
import { healthz, me, openapi, readyz, ServiceController } from './service.js';
import { createWebhook, listDeliveries, listWebhooks, redeliver, removeWebhook, WebhooksController, webhookSecret } from './webhooks.js';

/** Every address there is: what is not here is not served. */
export const endpoints = [
  startRun,
  listRuns,
  getRun,
  listRunEvents,
  listSteps,
  listEffects,
  signalRun,
  cancelRun,
  pauseRun,
  resumeRun,
  releaseRun,
  streamEvents,
  listApprovals,
  getApproval,
  approve,
  reject,
  callback,
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
  me,
  healthz,
  readyz,
  openapi,
] as unknown as readonly Endpoint[];

export const controllers: readonly Type[] = [RunsController, EventsController, ActsController, ApprovalsController, CallbacksController, CasesController, RecordsController, FiguresController, WebhooksController, ServiceController];
