import { JSON_DEPTH_MAX, parseJson, type Json } from '@holdfast/protocol';
import { Problem } from './problem.js';

const utf8 = new TextDecoder('utf-8', { fatal: true });
const CHARSET = /;\s*charset\s*=\s*"?([^\s";]+)/i;

export const WRONG_MEDIA_TYPE = 'send application/json in UTF-8, without a content encoding';

/**
 * A body's bytes as JSON. @throws Problem for another charset than UTF-8, for bytes that are no UTF-8 (something else
 * than was sent would be recorded in their place), and for what is no JSON, or too deep
 */
export function jsonOf(bytes: Uint8Array, contentType: string | undefined): Json {
  const charset = CHARSET.exec(contentType ?? '')?.[1];
  if (charset !== undefined && !/^utf-?8$/i.test(charset)) throw new Problem('unsupported-media-type', `${WRONG_MEDIA_TYPE}: the charset is ${charset.slice(0, 40)}`);
  const parsed = parseJson(textOf(bytes), JSON_DEPTH_MAX);
  if (!parsed.ok) throw new Problem('invalid-request', parsed.message);
  return parsed.value;
}

function textOf(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw new Problem('invalid-request', 'the body is no UTF-8');
  }
}
