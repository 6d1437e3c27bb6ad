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
  /** The same for each repetition: a receiver drops what it knows. */
  readonly id: string;
  readonly body: string;
}

/**
 * Posts JSON signed as Standard Webhooks (standardwebhooks.com) says: headers `webhook-id`,
 * `webhook-timestamp` and `webhook-signature`. `secret`: `whsec_` and base64. A post rejects when it
 * may not have been taken, with WebhookRefused for an answer other than 2xx.
 * @throws a secret that can't sign, at once
 */
export function signedPosts(url: string, secret: string): (post: SignedPost) => Promise<void> {
  const signer = new Webhook(secret);
  return (post) => send(url, signer, post);
}

async function send(url: string, signer: Webhook, { id, body }: SignedPost): Promise<void> {
  const at = new Date();
  const response = await fetch(url, {
    method: 'POST',
    redirect: 'error',
    signal: AbortSignal.timeout(TIMEOUT_MS),
    headers: {
      'content-type': 'application/json',
      'webhook-id': id,
      'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
      'webhook-signature': signer.sign(id, at, body),
    },
    body,
  });
  await response.body?.cancel();
  if (!response.ok) throw new WebhookRefused(response.status);
}
