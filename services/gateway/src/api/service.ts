import { Controller, Inject } from '@nestjs/common';
import { z } from 'zod';
import { endpoint, ok, Serves, type Answer, type CallOf } from '../http/endpoint.js';
import { Readiness } from '../readiness.js';
import { Views } from '../views/views.js';

const Health = z.object({ ok: z.boolean(), problem: z.string().nullable(), generation: z.number().int() }).meta({ id: 'Health' });
/** Where traces are shown; null: nowhere. */
export const TRACE_URL = Symbol('trace url');

const service = { method: 'get', tag: 'service', may: 'public' } as const;

export const healthz = endpoint({ ...service, id: 'healthz', path: '/healthz', summary: 'Whether the process comes round', answers: { 200: { description: 'It does.', schema: Health }, 503: { description: 'It does not.', schema: Health } } });
export const readyz = endpoint({ ...service, id: 'readyz', path: '/readyz', summary: 'Whether it can serve', answers: { 200: { description: 'It can.', schema: Health }, 503: { description: 'It can not, and why.', schema: Health } } });
export const openapi = endpoint({ ...service, id: 'openapi', path: '/v1/openapi.json', summary: 'This description', answers: { 200: { description: 'OpenAPI 3.1.', schema: z.looseObject({ openapi: z.string() }) } } });

export const me = endpoint({
  ...{ id: 'me', method: 'get', path: '/v1/me', tag: 'service', may: 'viewer', summary: 'Who you are here, and what you may' },
  answers: { 200: { description: 'You.', schema: z.object({ id: z.string(), name: z.string(), tenant: z.string(), roles: z.array(z.string()), tools: z.array(z.string()).nullable(), amountMax: z.number().nullable(), traceUrl: z.string().nullable().meta({ description: 'where traces are shown, with `{trace}` for the id' }) }).meta({ id: 'Principal' }) } },
});

@Controller()
export class ServiceController {
  constructor(
    @Inject(Views) private readonly views: Views,
    @Inject(Readiness) private readonly readiness: Readiness,
    @Inject('description') private readonly description: object,
    @Inject(TRACE_URL) private readonly traceUrl: string | null,
  ) {}

  @Serves(healthz)
  healthz(): Promise<Answer> {
    return Promise.resolve(ok({ ok: true, problem: null, generation: this.views.generation }));
  }

  @Serves(readyz)
  readyz(): Promise<Answer> {
    const { problem } = this.readiness;
    return Promise.resolve({ status: problem === null ? 200 : 503, body: { ok: problem === null, problem, generation: this.views.generation } });
  }

  @Serves(me)
  me({ principal }: CallOf<typeof me>): Promise<Answer> {
    return Promise.resolve(ok({ ...principal, traceUrl: this.traceUrl }));
  }

  @Serves(openapi)
  openapi(): Promise<Answer> {
    return Promise.resolve(ok(this.description));
  }
}
