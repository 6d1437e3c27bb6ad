import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js';
import canonicalize from 'canonicalize';
import type { Digest, OperationKey, RunId, Step, Tenant } from './ids.js';
import type { Json } from './json.js';

/** Stored beside each digest, so that a later rule can be told from this one. */
export const DIGEST_VERSION = 1;

const hash = (text: string): string => bytesToHex(sha256(utf8ToBytes(text)));

/**
 * RFC 8785 text of a JSON value: equal values give equal text on every machine, locale and runtime.
 *
 * RFC 8785 has no text for half a surrogate pair. A value that holds one is escaped throughout and
 * marked, so that it has a text of its own that no other value shares.
 */
export function canonicalJson(value: Json): string {
  const text = isWellFormed(value) ? canonicalize(value) : `escaped:${canonicalize(escapeStrings(value))}`;
  if (text === undefined) throw new TypeError('value is not JSON');
  return text;
}

function isWellFormed(value: Json): boolean {
  if (typeof value === 'string') return value.isWellFormed();
  if (value === null || typeof value !== 'object') return true;
  if (Array.isArray(value)) return value.every(isWellFormed);
  return Object.entries(value).every(([name, member]) => name.isWellFormed() && isWellFormed(member));
}

function escapeStrings(value: Json): Json {
  if (typeof value === 'string') return JSON.stringify(value);
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map(escapeStrings);
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [JSON.stringify(name), escapeStrings(member)]));
}

/**
 * Digest of an effect's arguments: SHA-256 over RFC 8785 canonical JSON. `1` and `1.0` are one
 * number; `null` and an absent member differ.
 */
export function digestOf(value: Json): Digest {
  return hash(canonicalJson(value)) as Digest;
}

/** Digest of a text, such as a callback's token: SHA-256 over its UTF-8. */
export const digestOfText = (text: string): Digest => hash(text) as Digest;

export type KeyParts =
  | { readonly scope: 'run'; readonly tenant: Tenant; readonly run: RunId; readonly step: Step; readonly tool: string; readonly target: string | null }
  | { readonly scope: 'target'; readonly tenant: Tenant; readonly tool: string; readonly target: string };

/**
 * The operation key: SHA-256 over a JSON array, so that no two sets of parts share a text
 * (`["a","bc"]` is not `["ab","c"]`).
 */
export function operationKey(parts: KeyParts): OperationKey {
  const text =
    parts.scope === 'run'
      ? JSON.stringify(['run', parts.tenant, parts.run, parts.step, parts.tool, parts.target])
      : JSON.stringify(['target', parts.tenant, parts.tool, parts.target]);
  return hash(text) as OperationKey;
}

/** The part of the arguments that a contract calls material: all, unless it names members. Digests are of it. */
export function material(contract: { readonly material?: readonly string[] | undefined } | null, args: Json): Json {
  if (contract?.material === undefined || args === null || typeof args !== 'object' || Array.isArray(args)) return args;
  const members = args as { readonly [name: string]: Json };
  return Object.fromEntries(contract.material.flatMap((name) => (Object.hasOwn(members, name) ? [[name, members[name] ?? null]] : [])));
}
