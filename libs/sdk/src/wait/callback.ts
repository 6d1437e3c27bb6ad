import { createHmac } from 'node:crypto';
import type { RunId, Step, Tenant } from '@holdfast/protocol';
import { NotConfigured } from '../errors.js';

/** How third parties answer runs of this worker. */
export interface CallbackSettings {
  /** Makes the tokens. All workers of a pool must have the same one: a run that moves gives out the same token. */
  readonly secret?: string | undefined;
  /** Where the gateway takes answers, as third parties reach it. */
  readonly url?: string | undefined;
}

/** @internal */
export const callbackSettings = (env: NodeJS.ProcessEnv): CallbackSettings => ({ secret: env['HOLDFAST_CALLBACK_SECRET'], url: env['HOLDFAST_CALLBACK_URL'] });

/**
 * The token of one wait. It follows from where the wait stands, so that a replay gives it out again
 * and nothing needs to store it.
 * @throws NotConfigured without a secret
 * @internal
 */
export function callbackToken({ secret }: CallbackSettings, place: { readonly tenant: Tenant; readonly run: RunId; readonly step: Step }): string {
  if (secret === undefined || secret === '') {
    throw new NotConfigured('run.callback makes its token with a secret, and this worker has none: set HOLDFAST_CALLBACK_SECRET to the same text for all workers of the pool, or give serve() "callbacks"');
  }
  return createHmac('sha256', secret).update(JSON.stringify(['callback', place.tenant, place.run, place.step])).digest('base64url');
}

/** @throws NotConfigured without a base @internal */
export function callbackUrl({ url }: CallbackSettings, run: RunId, step: Step, token: string): string {
  if (url === undefined || url === '') {
    throw new NotConfigured('a callback\'s URL begins with where third parties reach the gateway, and this worker doesn\'t know it: set HOLDFAST_CALLBACK_URL, or give serve() "callbacks"');
  }
  return `${url.replace(/\/+$/, '')}/${encodeURIComponent(run)}/${step}/${token}`;
}
