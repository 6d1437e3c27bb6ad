import { Webhook } from 'standardwebhooks';
import type { Notice } from './notice.js';

/** Tells people. Rejects when it may not have reached them. */
export type Tell = (notice: Notice) => Promise<void>;

const TIMEOUT_MS = 10_000;

/**
 * Posts a notice as JSON, signed as Standard Webhooks (standardwebhooks.com) says: headers
 * `webhook-id`, `webhook-timestamp` and `webhook-signature`.
 */
export function webhook(url: string, secret: string): Tell {
  const signer = new Webhook(secret);
  return async (notice) => {
    const body = JSON.stringify(notice);
    const at = new Date();
    const response = await fetch(url, {
      method: 'POST',
      redirect: 'error',
      signal: AbortSignal.timeout(TIMEOUT_MS),
      headers: {
        'content-type': 'application/json',
        'webhook-id': notice.id,
        'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
        'webhook-signature': signer.sign(notice.id, at, body),
      },
      body,
    });
    await response.body?.cancel();
    if (!response.ok) throw new Error(`the webhook answered ${response.status}`);
  };
}
