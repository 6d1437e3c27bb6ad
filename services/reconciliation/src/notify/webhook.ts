import { postSigned } from '@holdfast/runtime/webhook';
import type { Notice } from './notice.js';

/** Tells people. Rejects when it may not have reached them. */
export type Tell = (notice: Notice) => Promise<void>;

/** Posts a notice as JSON, signed. */
export const webhook = (url: string, secret: string): Tell => (notice) => postSigned({ url, secret, id: notice.id, body: JSON.stringify(notice) });
