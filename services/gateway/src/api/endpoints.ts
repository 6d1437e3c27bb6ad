import type { Type } from '@nestjs/common';
import type { Endpoint } from '../http/endpoint.js';
import { ActsController, cancelRun, forkRun, pauseRun, releaseRun, resumeRun, retryRun, signalRun } from './acts.js';
import { approve, ApprovalsController, getApproval, listApprovals, reject } from './approvals.js';
import { BrakesController, listBrakes, releaseBrake, setBrake } from './brakes.js';
import { callback, CallbacksController } from './callbacks.js';
import { assignCase, CasesController, getCase, listCases, resolveCase } from './cases.js';
import { EventsController, listRunEvents, streamEvents } from './events.js';
import { createKey, KeysController, listKeys, revokeKey, rotateKey } from './keys.js';
import { approveCompensation, compensateRun, getPlan, listPlans, PlansController, rejectCompensation } from './plans.js';
import { getIntegrity, getRun, listEffects, listRuns, listSteps, RunsController, startRun } from './runs.js';
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
  forkRun,
  retryRun,
  compensateRun,
  getIntegrity,
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
  listPlans,
  getPlan,
  approveCompensation,
  rejectCompensation,
  listBrakes,
  setBrake,
  releaseBrake,
  listContracts,
  listWorkers,
  listDeadLetters,
  redrive,
  getFigures,
  listKeys,
  createKey,
  rotateKey,
  revokeKey,
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

export const controllers: readonly Type[] = [RunsController, EventsController, ActsController, ApprovalsController, CallbacksController, CasesController, PlansController, BrakesController, KeysController, RecordsController, FiguresController, WebhooksController, ServiceController];
