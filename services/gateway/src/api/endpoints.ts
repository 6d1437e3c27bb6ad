import type { Type } from '@nestjs/common';
import type { Endpoint } from '../http/endpoint.js';
import { assignCase, CasesController, getCase, listCases, resolveCase } from './cases.js';
import { EventsController, listRunEvents, streamEvents } from './events.js';
import { getRun, listEffects, listRuns, listSteps, RunsController, startRun } from './runs.js';
import { healthz, openapi, readyz, ServiceController } from './service.js';

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
  healthz,
  readyz,
  openapi,
] as unknown as readonly Endpoint[];

export const controllers: readonly Type[] = [RunsController, EventsController, CasesController, ServiceController];
