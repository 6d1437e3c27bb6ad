import { Controller, Inject } from '@nestjs/common';
import { systemClock } from '@holdfast/runtime';
import { Name } from '@holdfast/protocol';
import { z } from 'zod';
import { KeyMade, Keys, ROTATION_GRACE_MS, type KeyView } from '../access/keys.js';
import { KeyName, KeyRoles, type Principal } from '../domain/access.js';
import { endpoint, ok, Serves, type Answer, type CallOf } from '../http/endpoint.js';
import { Problem } from '../http/problem.js';
import { iso, isoOrNull, Moment, Time } from './shapes.js';

const KeyOut = z
  .object({ id: z.string(), name: z.string(), roles: z.array(z.string()), tools: z.array(z.string()).nullable(), amountMax: z.number().nullable(), createdAt: Time, expiresAt: Time.nullable(), revokedAt: Time.nullable(), usedAt: Time.nullable() })
  .meta({ id: 'ApiKey' });
const MadeKey = z.object({ key: z.string().meta({ description: 'shown this once: only its hash is kept' }), ...KeyOut.shape }).meta({ id: 'MadeApiKey' });
const shared = { tag: 'keys', may: 'admin' } as const;
const params = z.object({ key: z.string().regex(/^[0-9a-f]{12}$/, 'is no key’s id') });

export const listKeys = endpoint({ ...{ ...shared, id: 'listKeys', method: 'get', path: '/v1/keys', summary: 'API keys of the tenant, newest first; never their secrets' }, answers: { 200: { description: 'The latest thousand.', schema: z.object({ items: z.array(KeyOut) }) } } });
export const createKey = endpoint({
  ...{ ...shared, id: 'createKey', method: 'post', path: '/v1/keys', summary: 'Make an API key of the tenant', act: 'key.create', shownOnce: true },
  body: z
    .strictObject({
      name: KeyName.meta({ description: 'who or what it is for: commands are signed with it' }),
      roles: KeyRoles,
      tools: z.array(Name).min(1).max(1000).optional().meta({ description: 'tools that it may decide about; all when absent' }),
      amountMax: z.number().nonnegative().max(1e15).optional().meta({ description: 'largest amount that it may decide about' }),
      expiresAt: Moment.optional(),
    })
    .meta({ id: 'CreateApiKey' }),
  answers: { 201: { description: 'The key.', schema: MadeKey } },
  problems: ['refused'],
});
export const rotateKey = endpoint({
  ...{ ...shared, id: 'rotateKey', method: 'post', path: '/v1/keys/{key}/rotate', summary: 'Make a new key for the same use; the old one goes on for a while', act: 'key.rotate', shownOnce: true },
  params,
  body: z.strictObject({ graceMs: z.number().int().min(0).max(30 * 24 * 60 * 60 * 1000).default(ROTATION_GRACE_MS).meta({ description: 'how long the old one goes on, milliseconds' }) }).meta({ id: 'RotateApiKey' }),
  answers: { 201: { description: 'The new key.', schema: MadeKey } },
  problems: ['refused'],
});
export const revokeKey = endpoint({
  ...{ ...shared, id: 'revokeKey', method: 'post', path: '/v1/keys/{key}/revoke', summary: 'From now on it opens nothing', act: 'key.revoke' },
  params,
  answers: { 200: { description: 'It is revoked.', schema: z.object({ id: z.string() }) } },
});

@Controller()
export class KeysController {
  constructor(@Inject(Keys) private readonly keys: Keys) {}

  @Serves(listKeys)
  async list({ principal }: CallOf<typeof listKeys>): Promise<Answer> {
    return ok({ items: (await this.keys.list(principal.tenant)).map(keyOut) });
  }

  @Serves(createKey)
  async create({ body: { expiresAt, ...of }, principal, command }: CallOf<typeof createKey>): Promise<Answer> {
    if (expiresAt !== undefined && expiresAt <= systemClock.now()) throw new Problem('invalid-request', 'body: expiresAt: is over');
    noMoreThan(principal, { tools: of.tools ?? null, amountMax: of.amountMax ?? null });
    const { key, view } = await this.keys.create({ ...of, expiresAt, tenant: principal.tenant }, command).catch(shownOnce);
    return { status: 201, body: { key, ...keyOut(view) } };
  }

  @Serves(rotateKey)
  async rotate({ params: { key: id }, body: { graceMs }, principal, command }: CallOf<typeof rotateKey>): Promise<Answer> {
    const old = await this.#find(id, principal.tenant);
    noMoreThan(principal, old);
    const made = await this.keys.rotate(id, principal.tenant, graceMs, command).catch(shownOnce);
    if (made === null) throw new Problem('refused', `key ${id} was revoked: create a new one`, { extra: { reason: 'revoked' } });
    return { status: 201, body: { key: made.key, ...keyOut(made.view) } };
  }

  @Serves(revokeKey)
  async revoke({ params: { key: id }, principal }: CallOf<typeof revokeKey>): Promise<Answer> {
    await this.#find(id, principal.tenant);
    await this.keys.revoke(id, principal.tenant);
    return ok({ id });
  }

  async #find(id: string, tenant: string): Promise<KeyView> {
    const found = (await this.keys.list(tenant)).find((key) => key.id === id);
    if (found === undefined) throw new Problem('not-found', `there is no key ${id}`);
    return found;
  }
}

function shownOnce(error: unknown): never {
  throw error instanceof KeyMade ? new Problem('refused', error.message, { extra: { reason: 'shown_once', key: error.id } }) : error;
}

/** Whoever is bounded makes no key that is not. */
function noMoreThan({ tools, amountMax }: Principal, made: Pick<Principal, 'tools' | 'amountMax'>): void {
  if (tools !== null && (made.tools === null || made.tools.some((tool) => !tools.includes(tool)))) throw new Problem('forbidden', `your own key decides about ${tools.join(', ')} alone, and makes none that decides about more`);
  if (amountMax !== null && (made.amountMax === null || made.amountMax > amountMax)) throw new Problem('forbidden', `your own key decides up to ${amountMax}, and makes none that decides beyond`);
}

const keyOut = ({ tenant: _, roles, tools, createdAt, expiresAt, revokedAt, usedAt, ...rest }: KeyView): z.input<typeof KeyOut> => ({
  ...rest,
  roles: [...roles],
  tools: tools === null ? null : [...tools],
  createdAt: iso(createdAt),
  expiresAt: isoOrNull(expiresAt),
  revokedAt: isoOrNull(revokedAt),
  usedAt: isoOrNull(usedAt),
});
