import { Webhook } from 'standardwebhooks';

const TIMEOUT_MS = 10_000;

/** The receiver answered, and not with a success. */
export class WebhookRefused extends Error {
  override readonly name = 'WebhookRefused';
  constructor(readonly status: number) {
    super(`the webhook answered ${status}`);
  }
}

export interface SignedPost {
  readonly url: string;
  /** `whsec_` and base64. */
  readonly secret: string;
  /** The same for each repetition: a receiver drops what it knows. */
  readonly id: string;
  readonly body: string;
}

/**
 * Posts JSON signed as Standard Webhooks (standardwebhooks.com) says: headers `webhook-id`,
 * `webhook-timestamp` and `webhook-signature`. Rejects when it may not have been taken.
 * @throws WebhookRefused an answer other than 2xx
 */
export async function postSigned({ url, secret, id, body }: SignedPost): Promise<void> {
  const at = new Date();
  const response = await fetch(url, {
    method: 'POST',
    redirect: 'error',
    signal: AbortSignal.timeout(TIMEOUT_MS),
    headers: {
      'content-type': 'application/json',
      'webhook-id': id,
      'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
      'webhook-signature': new Webhook(secret).sign(id, at, body),
    },
    body,
  });
  await response.body?.cancel();
  if (!response.ok) throw new WebhookRefused(response.status);
}
