import type { Json } from '@holdfast/protocol';

/** One request of an address, good in its form, about things that a tenant has. */
export interface SampleRequest {
  readonly address: string;
  readonly body?: Json;
  /** What it answers to whoever shows no credentials, where it asks for none. Default 200. */
  readonly open?: number;
}

/** What the requests are about: a run with an open case, an approval, a dead letter, a webhook and a key of the tenant. */
export interface Things {
  readonly run: string;
  readonly case: string;
  readonly approval: string;
  readonly letter: string;
  readonly webhook: string;
  readonly key: string;
}

/** By the address’s id: one without a request here fails the table of roles and tenants. */
export function sampleRequests({ run, case: of, approval: asked, letter, webhook, key }: Things): Readonly<Record<string, SampleRequest>> {
  const id = encodeURIComponent(run);
  const name = encodeURIComponent(of);
  const approval = encodeURIComponent(asked);
  return {
    startRun: { address: '/v1/runs?waitMs=0', body: { agent: { name: 'desk', version: '1' }, input: { order: 'table' } } },
    listRuns: { address: '/v1/runs' },
    getRun: { address: `/v1/runs/${id}` },
    listRunEvents: { address: `/v1/runs/${id}/events` },
    listSteps: { address: `/v1/runs/${id}/steps` },
    listEffects: { address: `/v1/runs/${id}/effects` },
    streamEvents: { address: '/v1/events' },
    signalRun: { address: `/v1/runs/${id}/signal?waitMs=0`, body: { name: 'nothing waits for it' } },
    pauseRun: { address: `/v1/runs/${id}/pause?waitMs=0`, body: { reason: 'the table' } },
    resumeRun: { address: `/v1/runs/${id}/resume?waitMs=0` },
    releaseRun: { address: `/v1/runs/${id}/release?waitMs=0`, body: { reason: 'the table' } },
    forkRun: { address: `/v1/runs/${id}/fork?waitMs=0`, body: { from: '1' } },
    retryRun: { address: `/v1/runs/${id}/retry?waitMs=0`, body: {} },
    compensateRun: { address: `/v1/runs/${id}/compensate?waitMs=0`, body: { reason: 'the table' } },
    getIntegrity: { address: `/v1/runs/${id}/integrity` },
    listPlans: { address: '/v1/plans?status=any' },
    getPlan: { address: `/v1/plans/${id}` },
    approveCompensation: { address: `/v1/plans/${id}/steps/1/approve?waitMs=0`, body: { digest: '0'.repeat(64) } },
    rejectCompensation: { address: `/v1/plans/${id}/steps/1/reject?waitMs=0`, body: { reason: 'the table' } },
    listBrakes: { address: '/v1/brakes' },
    setBrake: { address: '/v1/brakes/tenant%3Adefault/set?waitMs=0', body: { reason: 'the table' } },
    releaseBrake: { address: '/v1/brakes/tenant%3Adefault/release?waitMs=0' },
    listKeys: { address: '/v1/keys' },
    createKey: { address: '/v1/keys', body: { name: 'table', roles: ['viewer'] } },
    rotateKey: { address: `/v1/keys/${key}/rotate`, body: {} },
    revokeKey: { address: `/v1/keys/${key}/revoke` },
    cancelRun: { address: `/v1/runs/${id}/cancel?waitMs=0`, body: { reason: 'the table' } },
    listApprovals: { address: '/v1/approvals?status=any' },
    getApproval: { address: `/v1/approvals/${approval}` },
    approve: { address: `/v1/approvals/${approval}/approve?waitMs=0`, body: { digest: '0'.repeat(64) } },
    reject: { address: `/v1/approvals/${approval}/reject?waitMs=0`, body: { digest: '0'.repeat(64) } },
    callback: { address: `/v1/callbacks/${id}/1/not-the-token-of-this-wait`, body: { answer: 'x' }, open: 404 },
    listCases: { address: '/v1/cases' },
    getCase: { address: `/v1/cases/${name}` },
    assignCase: { address: `/v1/cases/${name}/assign?waitMs=0`, body: { owner: 'somebody' } },
    // Refused by its service whoever asks: "not applied" can't be proved yet.
    resolveCase: { address: `/v1/cases/${name}/resolve?waitMs=0`, body: { verdict: { status: 'not_applied' }, reason: 'the table', evidence: 'none' } },
    listContracts: { address: '/v1/contracts' },
    listWorkers: { address: '/v1/workers' },
    listDeadLetters: { address: '/v1/dead-letters' },
    redrive: { address: `/v1/dead-letters/${letter}/redrive` },
    getFigures: { address: '/v1/figures' },
    createWebhook: { address: '/v1/webhooks', body: { url: 'https://example.org/hook', types: ['RunFinished'] } },
    listWebhooks: { address: '/v1/webhooks' },
    webhookSecret: { address: `/v1/webhooks/${webhook}/secret` },
    listDeliveries: { address: `/v1/webhooks/${webhook}/deliveries` },
    redeliver: { address: `/v1/webhooks/${webhook}/deliveries/none/redeliver` },
    removeWebhook: { address: `/v1/webhooks/${webhook}` },
    me: { address: '/v1/me' },
    healthz: { address: '/healthz' },
    readyz: { address: '/readyz' },
    openapi: { address: '/v1/openapi.json' },
  };
}

export type BadRequest = readonly [what: string, status: number, address: string, options: { readonly method?: string; readonly body?: unknown; readonly headers?: Readonly<Record<string, string>> }];

const post = (body: unknown, headers: Readonly<Record<string, string>> = {}) => ({ method: 'POST', body, headers });
const agent = { name: 'desk', version: '1' };

/** What the API does not take, each with the status of its problem. */
export const badRequests: readonly BadRequest[] = [
  ['an unknown address', 404, '/v1/nothing', {}],
  ['a method that an address doesn’t take', 405, '/v1/runs/good-1', { method: 'DELETE' }],
  ['no JSON', 400, '/v1/runs', post('{"agent":')],
  ['another media type', 415, '/v1/runs', post('agent=desk', { 'content-type': 'application/x-www-form-urlencoded' })],
  ['no body', 415, '/v1/runs', { method: 'POST' }],
  ['an empty body', 400, '/v1/runs', post('')],
  ['a body too large', 413, '/v1/runs', post({ agent, input: 'x'.repeat(300_000) })],
  ['a message too large', 413, '/v1/runs', post({ agent, input: 'x'.repeat(262_200) })],
  ['a number that can’t be held', 400, '/v1/runs', post('{"agent":null,"input":12345678901234567890}')],
  ['lists nested too deep', 400, '/v1/runs', post(`{"agent":null,"input":${'['.repeat(5000)}${']'.repeat(5000)}}`)],
  ['bytes that are no UTF-8', 400, '/v1/runs', post(Buffer.concat([Buffer.from('{"agent":null,"input":"'), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]))],
  ['another charset', 415, '/v1/runs', post('{"agent":null}', { 'content-type': 'application/json; charset=utf-16' })],
  ['a member __proto__', 400, '/v1/runs', post('{"agent":null,"input":{"__proto__":1}}')],
  ['an unknown member', 400, '/v1/runs', post({ agent, input: {}, colour: 'red' })],
  ['a run id that is none', 400, '/v1/runs', post({ agent, runId: '~lane' })],
  ['a NUL in a path', 400, '/v1/runs/a%00b', {}],
  ['a broken escape in a path', 400, '/v1/runs/%zz', {}],
  ['a cursor that no page gave out', 400, '/v1/runs?cursor=WyJhXHUwMDAwIl0', {}],
  ['a status that there is not', 400, '/v1/runs?status=lost', {}],
  ['a filter that there is not', 400, '/v1/runs?phase=waiting', {}],
  ['a limit beyond measure', 400, '/v1/runs?limit=1000000', {}],
  ['a place that there is not', 400, '/v1/events?after=x9', {}],
  ['a Last-Event-ID that is none', 400, '/v1/events', { headers: { accept: 'text/event-stream', 'last-event-id': 'zz' } }],
  ['an Idempotency-Key that is none', 400, '/v1/runs', post({ agent }, { 'idempotency-key': 'a b' })],
  ['a case that is none', 400, '/v1/cases/x', {}],
  ['a case of an attempt that is not there', 404, '/v1/cases/doubt-1%2F1%2F9', {}],
  ['figures of no time', 400, '/v1/figures?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z', {}],
  ['a brake that is none', 400, '/v1/brakes/door%3Afront/set', post({ reason: 'r' })],
  ['another tenant’s brake', 404, '/v1/brakes/tenant%3Aelsewhere/set', post({ reason: 'r' })],
  ['a plan of a run that did nothing to answer', 404, '/v1/plans/nobody', {}],
  ['a key that is none', 400, '/v1/keys/x/revoke', { method: 'POST' }],
  ['a key that ended before it began', 400, '/v1/keys', post({ name: 'n', roles: ['viewer'], expiresAt: '2020-01-01T00:00:00Z' })],
  ['a fork from no step', 400, '/v1/runs/good-1/fork', post({})],
  ['a webhook into the house', 400, '/v1/webhooks', post({ url: 'http://10.0.0.1/', types: ['RunFinished'] })],
  ['a webhook to nowhere', 400, '/v1/webhooks', post({ url: '', types: ['RunFinished'] })],
  ['a run that is not there', 404, '/v1/runs/nobody/cancel', post({ reason: 'r' })],
  ['a yes to nothing that was shown', 400, '/v1/approvals/nobody%2F1/approve', post({})],
];
