import { signedPosts } from '@holdfast/runtime/webhook';
import type { Notice } from './notice.js';

/** Tells people. Rejects when it may not have reached them. */
export type Tell = (notice: Notice) => Promise<void>;

/** Posts a notice as JSON, signed. @throws a secret that can't sign, at once */
export function webhook(url: string, secret: string): Tell {
  const post = signedPosts(url, secret);
  return (notice) => post({ id: notice.id, body: JSON.stringify(notice) });
}
