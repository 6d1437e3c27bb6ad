import { createHash } from 'node:crypto';
import { Controller, Inject } from '@nestjs/common';
import { caseMessages, effectMessages, runMessages } from '@holdfast/protocol';
import { systemClock } from '@holdfast/runtime';
import type { DataSource } from 'typeorm';
import { z } from 'zod';
import { secretOf } from '../hooks/sender.js';
import { endpoint, ok, Serves, type Answer, type CallOf } from '../http/endpoint.js';
import { Problem } from '../http/problem.js';
import { rowsOf } from '../store/database.js';
import { iso, isoOrNull, Limit, Time } from './shapes.js';

const TYPES = [...runMessages, ...effectMessages, ...caseMessages].map(({ type }) => type).filter((type) => type !== 'LaneTaken') as [string, ...string[]];

/** Secrets and events of a tenant leave by TLS; plain HTTP stays on this machine. */
const Target = z
  .url({ protocol: /^https?$/ })
  .max(2000)
  .refine((text) => {
    if (!URL.canParse(text)) return false;
    const { protocol, hostname, username, password } = new URL(text);
    return username === '' && password === '' && (protocol === 'https:' || ['127.0.0.1', 'localhost', '[::1]'].includes(hostname));
  }, 'takes an https address without credentials (http only on this machine)');

const WebhookOut = z.object({ id: z.string(), url: z.string(), types: z.array(z.string()), createdAt: Time }).meta({ id: 'Webhook' });
const DeliveryOut = z
  .object({ id: z.string(), event: z.string(), type: z.string(), state: z.enum(['pending', 'delivered', 'dead']), tries: z.number().int(), nextAt: Time.nullable(), problem: z.string().nullable(), createdAt: Time, endedAt: Time.nullable() })
  .meta({ id: 'Delivery' });
const WebhookId = z.string().regex(/^wh_[0-9a-f]{16}$/, 'is no webhook’s id');
const params = z.object({ webhook: WebhookId });
const shared = { tag: 'webhooks', may: 'admin' } as const;

export const createWebhook = endpoint({
  ...{ ...shared, id: 'createWebhook', method: 'post', path: '/v1/webhooks', summary: 'Have events posted to an address, signed as Standard Webhooks says', act: 'webhook.create' },
  body: z.strictObject({ url: Target, types: z.array(z.enum(TYPES)).min(1).max(TYPES.length) }).meta({ id: 'CreateWebhook' }),
  answers: { 201: { description: 'It is posted to from now on; its secret is at `/v1/webhooks/{webhook}/secret`.', schema: WebhookOut } },
  problems: ['refused'],
});
export const listWebhooks = endpoint({
  ...{ ...shared, id: 'listWebhooks', method: 'get', path: '/v1/webhooks', summary: 'Webhooks' },
  answers: { 200: { description: 'All of them.', schema: z.object({ items: z.array(WebhookOut) }) } },
});
export const webhookSecret = endpoint({
  ...{ ...shared, id: 'webhookSecret', method: 'get', path: '/v1/webhooks/{webhook}/secret', summary: 'The secret by which the receiver knows what is ours', act: 'webhook.secret' },
  params,
  answers: { 200: { description: 'The secret.', schema: z.object({ secret: z.string() }) } },
  problems: ['refused'],
});
export const removeWebhook = endpoint({
  ...{ ...shared, id: 'removeWebhook', method: 'delete', path: '/v1/webhooks/{webhook}', summary: 'Post no more', act: 'webhook.remove' },
  params,
  answers: { 204: { description: 'It is gone.' } },
});
export const listDeliveries = endpoint({
  ...{ ...shared, id: 'listDeliveries', method: 'get', path: '/v1/webhooks/{webhook}/deliveries', summary: 'What was posted, newest first; dead ones were given up', description: 'Each is listed for a time after its end: by default a week where it was delivered, a month where it was given up.' },
  params,
  query: z.object({ state: z.enum(['pending', 'delivered', 'dead']).optional(), limit: Limit }),
  answers: { 200: { description: 'Deliveries.', schema: z.object({ items: z.array(DeliveryOut) }) } },
});
export const redeliver = endpoint({
  ...{ ...shared, id: 'redeliver', method: 'post', path: '/v1/webhooks/{webhook}/deliveries/{delivery}/redeliver', summary: 'Post a dead delivery again', act: 'webhook.redeliver' },
  params: z.object({ webhook: WebhookId, delivery: z.string().regex(/^[\w.]{1,100}$/, 'is no delivery’s id') }),
  answers: { 202: { description: 'It is due now.', schema: z.object({ delivery: z.string() }) } },
  problems: ['refused'],
});

interface HookRow {
  readonly id: string;
  readonly url: string;
  readonly types: string[];
  readonly created_at: number;
}
interface DeliveryRow {
  readonly id: string;
  readonly event: string;
  readonly type: string;
  readonly state: 'pending' | 'delivered' | 'dead';
  readonly tries: number;
  readonly next_at: number | null;
  readonly last_problem: string | null;
  readonly created_at: number;
  readonly ended_at: number | null;
}

export const DATABASE = Symbol('database');
export const WEBHOOK_KEY = Symbol('webhook key');

@Controller()
export class WebhooksController {
  constructor(
    @Inject(DATABASE) private readonly database: DataSource,
    @Inject(WEBHOOK_KEY) private readonly key: string | null,
  ) {}

  @Serves(createWebhook)
  async create({ body, principal, command }: CallOf<typeof createWebhook>): Promise<Answer> {
    this.#key();
    // The same request again is the same webhook.
    const id = `wh_${createHash('sha256').update(JSON.stringify(['webhook', command])).digest('hex').slice(0, 16)}`;
    const values = [id, principal.tenant, body.url, [...new Set(body.types)]];
    const [made] = await rowsOf<HookRow>(this.database, 'insert into webhook (id, tenant, url, types, created_at) values ($1, $2, $3, $4, $5) on conflict (id) do nothing returning *', [...values, systemClock.now()]);
    const row = made ?? (await rowsOf<HookRow>(this.database, 'select * from webhook where id = $1 and tenant = $2 and url = $3 and types = $4 and removed_at is null', values))[0];
    if (row === undefined) throw new Problem('idempotency-key-reused', 'this Idempotency-Key was used for another webhook, or one that was removed; choose a new one');
    return { status: 201, body: hookOut(row) };
  }

  @Serves(listWebhooks)
  async list({ principal }: CallOf<typeof listWebhooks>): Promise<Answer> {
    const rows = await rowsOf<HookRow>(this.database, 'select * from webhook where tenant = $1 and removed_at is null order by created_at, id limit 1000', [principal.tenant]);
    return ok({ items: rows.map(hookOut) });
  }

  @Serves(webhookSecret)
  async secret({ params: { webhook }, principal }: CallOf<typeof webhookSecret>): Promise<Answer> {
    await this.#find(principal.tenant, webhook);
    return ok({ secret: secretOf(this.#key(), webhook) });
  }

  @Serves(removeWebhook)
  async remove({ params: { webhook }, principal }: CallOf<typeof removeWebhook>): Promise<Answer> {
    await this.#find(principal.tenant, webhook);
    const now = systemClock.now();
    await this.database.query('update webhook set removed_at = $2 where id = $1', [webhook, now]);
    await this.database.query(`update delivery set state = 'dead', ended_at = $2, next_at = null, last_problem = 'the webhook was removed' where webhook = $1 and state = 'pending'`, [webhook, now]);
    return { status: 204 };
  }

  @Serves(listDeliveries)
  async deliveries({ params: { webhook }, query: { state, limit }, principal }: CallOf<typeof listDeliveries>): Promise<Answer> {
    await this.#find(principal.tenant, webhook);
    const rows = await rowsOf<DeliveryRow>(this.database, 'select * from delivery where webhook = $1 and ($2::text is null or state = $2) order by created_at desc, id desc limit $3', [webhook, state ?? null, limit]);
    return ok({ items: rows.map(deliveryOut) });
  }

  @Serves(redeliver)
  async redeliver({ params: { webhook, delivery }, principal }: CallOf<typeof redeliver>): Promise<Answer> {
    await this.#find(principal.tenant, webhook);
    const rows = await rowsOf(
      this.database,
      `with due as (update delivery set state = 'pending', tries = 0, next_at = $3, ended_at = null where webhook = $1 and id = $2 and state = 'dead' returning id) select id from due`,
      [webhook, delivery, systemClock.now()],
    );
    if (rows.length === 0) throw new Problem('refused', 'only a dead delivery is posted again', { extra: { reason: 'not_dead' } });
    return { status: 202, body: { delivery } };
  }

  async #find(tenant: string, id: string): Promise<void> {
    const rows = await rowsOf(this.database, 'select id from webhook where id = $1 and tenant = $2 and removed_at is null', [id, tenant]);
    if (rows.length === 0) throw new Problem('not-found', `there is no webhook ${id}`);
  }

  #key(): string {
    if (this.key === null) throw new Problem('refused', 'this gateway sends no webhooks: HOLDFAST_WEBHOOK_KEY is not set', { extra: { reason: 'not_configured' } });
    return this.key;
  }
}

const hookOut = ({ id, url, types, created_at }: HookRow): z.input<typeof WebhookOut> => ({ id, url, types, createdAt: iso(created_at) });
const deliveryOut = ({ id, event, type, state, tries, next_at, last_problem, created_at, ended_at }: DeliveryRow): z.input<typeof DeliveryOut> => ({
  ...{ id, event, type, state, tries, problem: last_problem },
  ...{ nextAt: isoOrNull(next_at), createdAt: iso(created_at), endedAt: isoOrNull(ended_at) },
});
