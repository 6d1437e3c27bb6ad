import type { Json } from '@holdfast/protocol';

/** One request of an address, good in its form, about things that a tenant has. */
export interface SampleRequest {
  readonly address: string;
  readonly body?: Json;
}

/** What the requests are about: a run with an open case, a dead letter and a webhook of the tenant. */
export interface Things {
  readonly run: string;
  readonly case: string;
  readonly letter: string;
  readonly webhook: string;
}

/** By the address’s id: one without a request here fails the table of roles and tenants. */
export function sampleRequests({ run, case: of, letter, webhook }: Things): Readonly<Record<string, SampleRequest>> {
  const id = encodeURIComponent(run);
  const name = encodeURIComponent(of);
  return {
    startRun: { address: '/v1/runs?waitMs=0', body: { agent: { name: 'desk', version: '1' }, input: { order: 'table' } } },
    listRuns: { address: '/v1/runs' },
    getRun: { address: `/v1/runs/${id}` },
    listRunEvents: { address: `/v1/runs/${id}/events` },
    listSteps: { address: `/v1/runs/${id}/steps` },
    listEffects: { address: `/v1/runs/${id}/effects` },
    streamEvents: { address: '/v1/events' },
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
    healthz: { address: '/healthz' },
    readyz: { address: '/readyz' },
    openapi: { address: '/v1/openapi.json' },
  };
}
