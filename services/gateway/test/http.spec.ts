import { describe, expect, it } from '@jest/globals';
import type { ExecutionContext } from '@nestjs/common';
import type { Keys } from '../src/access/keys.js';
import { controllers, endpoints } from '../src/api/endpoints.js';
import { endpointOf, type Visited } from '../src/http/endpoint.js';
import { ProblemFilter } from '../src/http/filter.js';
import { AccessGuard, Authentication } from '../src/http/guard.js';
import { queryOf } from '../src/http/interceptor.js';
import { Idempotency } from '../src/http/idempotency.js';
import { problemsOf } from '../src/http/openapi.js';
import { Problem } from '../src/http/problem.js';
import { readGatewaySettings } from '../src/settings.js';

const handlers = controllers.flatMap((controller) => {
  const prototype = controller.prototype as Record<string, object>;
  return Object.getOwnPropertyNames(prototype).flatMap((name) => endpointOf(prototype[name] ?? {}) ?? []);
});

describe('addresses', () => {
  it('are declared and handled, each once', () => {
    expect(handlers.map(({ id }) => id).sort()).toEqual(endpoints.map(({ id }) => id).sort());
    expect(new Set(endpoints.map(({ method, path }) => `${method} ${path}`)).size).toBe(endpoints.length);
  });

  it('that change something are privileged acts with a name', () => {
    expect(endpoints.filter(({ method, may, act }) => method !== 'get' && may !== 'public' && act === undefined).map(({ id }) => id)).toEqual([]);
  });

  it('say when they want credentials, and that those may not be enough', () => {
    for (const spec of endpoints) expect([spec.id, problemsOf(spec).includes('unauthenticated')]).toEqual([spec.id, spec.may !== 'public']);
  });
});

describe('a query', () => {
  const specOf = (name: string) => {
    const spec = endpoints.find(({ id }) => id === name);
    if (spec === undefined) throw new Error(`there is no ${name}`);
    return spec;
  };

  it('gives what its address takes', () => {
    expect(queryOf(specOf('listRuns'), { status: 'waiting', limit: '3' })).toEqual({ status: ['waiting'], limit: 3 });
    expect(queryOf(specOf('getRun'), {})).toEqual({});
  });

  it.each<[string, Record<string, unknown>, RegExp]>([
    ['listRuns', { phase: 'waiting' }, /"phase" is not taken here; what is: status, agent, id, limit, cursor/],
    ['listRuns', { status: 'nonsense' }, /status: takes queued, running/],
    ['listCases', { state: 'open' }, /"state" is not taken/],
    ['getRun', { wait: '1' }, /"wait" is not taken here; nothing is/],
    ['listRuns', { toString: '1' }, /"toString" is not taken/],
  ])('of %s with %j is refused, and says what is taken', (id, query, message) => {
    expect(() => queryOf(specOf(id), query)).toThrow(message);
  });

  it('with more than that is passed over where an address is open to all', () => {
    expect(queryOf(specOf('healthz'), { probe: '1' })).toEqual({});
  });
});

/** One key that opens the door. */
const GOOD = `hf_${'0'.repeat(12)}_${'A'.repeat(43)}`;
const keys = { principalOf: (key: string) => Promise.resolve(key === GOOD ? { id: 'k', name: 'k', tenant: 't', roles: ['viewer'], tools: null, amountMax: null } : null) } as unknown as Keys;

function guardWith(rates: { perMinute: number; refusedPerMinute: number }): (authorization: string | undefined, handlerOf?: string) => Promise<boolean> {
  const guard = new AccessGuard(new Authentication(keys, null, rates), rates);
  return (authorization, id = 'listRuns') => {
    const controller = controllers.map(({ prototype }) => prototype as Record<string, object>).find((prototype) => Object.getOwnPropertyNames(prototype).some((name) => endpointOf(prototype[name] ?? {})?.id === id));
    const handler = Object.getOwnPropertyNames(controller ?? {}).map((name) => controller?.[name]).find((each) => endpointOf(each ?? {})?.id === id);
    const request = { headers: { authorization }, socket: { remoteAddress: '127.0.0.1' } } as unknown as Visited;
    return guard.canActivate({ getHandler: () => handler ?? (() => undefined), switchToHttp: () => ({ getRequest: () => request, getResponse: () => ({ setHeader: () => undefined }) }) } as unknown as ExecutionContext);
  };
}

const code = (work: Promise<unknown>): Promise<string> => work.then(() => 'in', (error: unknown) => (error instanceof Problem ? error.code : String(error)));

describe('the guard', () => {
  it('lets in who is known and may', async () => {
    const ask = guardWith({ perMinute: 100, refusedPerMinute: 100 });
    expect(await code(ask(`Bearer ${GOOD}`))).toBe('in');
    expect(await code(ask(undefined, 'healthz'))).toBe('in');
    expect(await code(ask(`Bearer ${GOOD}`, 'createWebhook'))).toBe('forbidden');
    expect(await code(ask(`Bearer ${GOOD}`, 'nothing declared'))).toBe('not-found');
  });

  it.each([undefined, '', 'Bearer', `Basic ${GOOD}`, `Bearer ${GOOD.replace('A', 'B')}`, 'Bearer a.b.c', `Bearer ${GOOD} ${GOOD}`])('knows nobody by "%s"', async (header) => {
    expect(await code(guardWith({ perMinute: 100, refusedPerMinute: 100 })(header))).toBe('unauthenticated');
  });

  it('counts what one key asks, and says when to come back', async () => {
    const ask = guardWith({ perMinute: 2, refusedPerMinute: 100 });
    expect([await code(ask(`Bearer ${GOOD}`)), await code(ask(`Bearer ${GOOD}`))]).toEqual(['in', 'in']);
    const refused = await ask(`Bearer ${GOOD}`).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'rate-limited', headers: { 'retry-after': expect.stringMatching(/^[1-9]\d*$/) } });
  });

  it('stops listening to an address that guesses', async () => {
    const ask = guardWith({ perMinute: 100, refusedPerMinute: 2 });
    expect([await code(ask('Bearer x')), await code(ask('Bearer y')), await code(ask('Bearer z'))]).toEqual(['unauthenticated', 'unauthenticated', 'rate-limited']);
  });
});

describe('problems', () => {
  const logged: unknown[] = [];
  const log = { info: () => undefined, warn: () => undefined, error: (entry: unknown) => void logged.push(entry) };
  const filter = new ProblemFilter(log as never, endpoints);
  const request = { path: '/v1/runs', method: 'GET' };

  it('tell the asker nothing of what went wrong inside', () => {
    const problem = filter.problemOf(new Error('password of the database'), request);
    expect([problem.code, JSON.stringify(problem.body).includes('password'), logged.length]).toEqual(['internal', false, 1]);
  });

  it('tell an outage from a fault', () => {
    expect(filter.problemOf(Object.assign(new Error('no'), { code: 'ECONNREFUSED' }), request).code).toBe('unavailable');
    expect(filter.problemOf(new Error('failed', { cause: Object.assign(new Error('gone'), { code: '57P01' }) }), request).code).toBe('unavailable');
  });
});

describe('an Idempotency-Key', () => {
  it.each([
    ['abc', 'abc'],
    ['"8e03978e-40d5"', '8e03978e-40d5'],
    [undefined, null],
  ])('%s is %s', (header, key) => {
    expect(Idempotency.keyIn(header)).toBe(key);
  });

  it.each(['', '""', 'a b', 'ä', 'x'.repeat(201)])('"%s" is none', (header) => {
    expect(() => Idempotency.keyIn(header)).toThrow(Problem);
  });

  it('names another command for another asker, and the same for the same', () => {
    const by = (tenant: string, id: string) => Idempotency.command({ id, tenant, name: '', roles: [], tools: null, amountMax: null }, 'k');
    expect(by('t', 'a')).toBe(by('t', 'a'));
    expect(new Set([by('t', 'a'), by('u', 'a'), by('t', 'b')]).size).toBe(3);
  });

  it('knows a request by what it asks, not by how it is written', () => {
    expect(Idempotency.fingerprint('POST', '/v1/runs', { a: 1, b: 2 })).toBe(Idempotency.fingerprint('POST', '/v1/runs', { b: 2, a: 1 }));
    expect(Idempotency.fingerprint('POST', '/v1/runs', { a: 1 })).not.toBe(Idempotency.fingerprint('POST', '/v1/runs?x', { a: 1 }));
  });
});

describe('settings', () => {
  const least = { HOLDFAST_BROKERS: 'b:1', HOLDFAST_DATABASE_URL: 'postgres://u@h:1' };
  it('bind to this machine alone unless told otherwise', () => {
    expect(readGatewaySettings(least)).toMatchObject({ HOLDFAST_HTTP_HOST: '127.0.0.1', oidc: null });
  });

  it('keep what was delivered for a week, and what was given up for a month', () => {
    expect(readGatewaySettings(least)).toMatchObject({ HOLDFAST_WEBHOOK_KEEP_DELIVERED_DAYS: 7, HOLDFAST_WEBHOOK_KEEP_DEAD_DAYS: 30 });
    expect(() => readGatewaySettings({ ...least, HOLDFAST_WEBHOOK_KEEP_DEAD_DAYS: '0' })).toThrow(/HOLDFAST_WEBHOOK_KEEP_DEAD_DAYS/);
  });

  it('take an issuer whole or not at all, and no algorithm with a shared secret', () => {
    const oidc = { HOLDFAST_OIDC_ISSUER: 'https://i', HOLDFAST_OIDC_AUDIENCE: 'a', HOLDFAST_OIDC_JWKS: 'https://i/jwks' };
    expect(readGatewaySettings({ ...least, ...oidc }).oidc).toMatchObject({ algorithms: ['RS256', 'ES256'] });
    expect(() => readGatewaySettings({ ...least, HOLDFAST_OIDC_ISSUER: 'https://i' })).toThrow(/go together/);
    expect(() => readGatewaySettings({ ...least, ...oidc, HOLDFAST_OIDC_ALGORITHMS: 'HS256' })).toThrow();
    expect(() => readGatewaySettings({ ...least, ...oidc, HOLDFAST_OIDC_ALGORITHMS: 'none' })).toThrow();
  });
});
