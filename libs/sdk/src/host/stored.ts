import { JSON_DEPTH_MAX, type Json, type Stored } from '@holdfast/protocol';
import { INLINE_BYTES_MAX, toJson, type SizedJson } from '../define/json.js';
import { clipped, messageOf } from '../errors.js';
import type { ArtifactPort } from './artifacts.js';

export interface Keeper {
  readonly artifacts: ArtifactPort | undefined;
  readonly tenant: string;
  readonly run: string;
}

const unreadable = (why: string): Stored => ({ unreadable: clipped(why, 2000) });

/**
 * A result as it is recorded: in the message, by reference, or named as unreadable. Never fails:
 * the effect has happened whether or not its result can be kept.
 */
export function keepResult(result: unknown, keeper: Keeper): Stored | Promise<Stored> {
  let json: SizedJson;
  try {
    json = resultJson(result);
  } catch (error) {
    return unreadable(messageOf(error));
  }
  return json.bytes <= INLINE_BYTES_MAX ? { value: json.value } : keepLarge(json.value, keeper);
}

async function keepLarge(json: Json, { artifacts, tenant, run }: Keeper): Promise<Stored> {
  try {
    const bytes = Buffer.from(JSON.stringify(json));
    if (bytes.byteLength <= INLINE_BYTES_MAX) return { value: json };
    if (artifacts === undefined) {
      return unreadable(`the result has ${bytes.byteLength} bytes of JSON, above ${INLINE_BYTES_MAX}, and this worker has no artifact store; give serve() one as "artifacts"`);
    }
    return { artifact: await artifacts.put(bytes, { mediaType: 'application/json', scope: { tenant, run } }) };
  } catch (error) {
    return unreadable(`the result is too large for a message and the artifact store did not take it: ${messageOf(error)}`);
  }
}

/**
 * A result is judged more mildly than what one is about to send: its effect has happened, so
 * absent members (which JSON would leave out) and values with a JSON form of their own (dates) are
 * taken for what JSON makes of them. What JSON would lose is still a fault.
 */
export function resultJson(result: unknown): SizedJson {
  try {
    return toJson(result === undefined ? null : result, 'the result');
  } catch (strict) {
    const mild = asJsonReadsIt(result, 0);
    try {
      return toJson(mild, 'the result');
    } catch {
      throw strict;
    }
  }
}

function asJsonReadsIt(value: unknown, depth: number): unknown {
  if (typeof value !== 'object' || value === null || depth > JSON_DEPTH_MAX) return value;
  if ('toJSON' in value && typeof value.toJSON === 'function') return value.toJSON('') as unknown;
  if (Array.isArray(value)) return value.map((member) => asJsonReadsIt(member, depth + 1));
  if (Object.prototype.toString.call(value) !== '[object Object]') return value;
  const present = Object.entries(value).filter(([, member]) => member !== undefined);
  return Object.fromEntries(present.map(([name, member]) => [name, asJsonReadsIt(member, depth + 1)]));
}
