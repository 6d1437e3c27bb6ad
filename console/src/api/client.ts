import createClient from 'openapi-fetch';
import { tellSignedOut, readKey } from './session.js';
import type { components, paths } from './schema.js';

export type Schemas = components['schemas'];
export type RunSummary = Schemas['RunSummary'];
export type Run = Schemas['Run'];
export type Step = Schemas['Step'];
export type Effect = Schemas['Effect'];
export type Case = Schemas['Case'];
export type Approval = Schemas['Approval'];
export type PlanSummary = Schemas['PlanSummary'];
export type Plan = Schemas['Plan'];
export type Compensation = Schemas['Compensation'];
export type DeadLetter = Schemas['DeadLetter'];
export type Brake = Schemas['Brake'];
export type Principal = Schemas['Principal'];
export type RunEvent = Schemas['RunEvent'];
export type Figures = Schemas['Figures'];

/** What the gateway said no with (RFC 9457), or that nobody answered (`status` 0). */
export class Refused extends Error {
  override readonly name = 'Refused';

  constructor(
    message: string,
    readonly status: number,
    readonly reason: string | null = null,
  ) {
    super(message);
  }
}

export const api = createClient<paths>({ baseUrl: globalThis.location?.origin ?? 'http://localhost' });

api.use({
  onRequest: ({ request }) => {
    const key = readKey();
    if (key !== null) request.headers.set('authorization', `Bearer ${key}`);
    return request;
  },
  onResponse: ({ response, request }) => {
    if (response.status === 401 && request.headers.get('authorization') === `Bearer ${readKey() ?? ''}`) tellSignedOut('The gateway no longer takes this key: it was revoked, or has expired. Sign in with another one.');
    return undefined;
  },
  onError: ({ error }) => (error instanceof DOMException && error.name === 'AbortError' ? undefined : new Refused('The gateway does not answer. It may be starting again; this page asks again by itself.', 0)),
});

interface Answer<T> {
  readonly data?: T;
  readonly error?: unknown;
  readonly response: Response;
}

/** The answer's body. @throws Refused */
export async function bodyOf<T>(asked: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await asked;
  if (response.ok && data !== undefined) return data;
  const { detail, title, reason } = (error ?? {}) as { detail?: unknown; title?: unknown; reason?: unknown };
  throw new Refused(typeof detail === 'string' ? detail : typeof title === 'string' ? title : `The gateway answered ${response.status}.`, response.status, typeof reason === 'string' ? reason : null);
}

/** One for each thing that somebody wants done: pressed twice, it is done once. */
export const idempotencyKey = (): string => `"${crypto.randomUUID()}"`;
