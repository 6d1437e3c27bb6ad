import { hash } from 'node:crypto';

/**
 * The hash chain of a stream: each event's hash covers the one before it, so that a change, a gap
 * or a reorder shows, and a signed head shows a cut tail.
 * `hash(n) = SHA-256(JSON [hash(n-1), stream, version, type, time, tenant, data text])`,
 * with `hash(0)` the empty string.
 */
export interface ChainLink {
  readonly stream: string;
  readonly version: number;
  readonly type: string;
  readonly time: number;
  readonly tenant: string;
  readonly data: string;
}

export function chainHash(before: string, link: ChainLink): string {
  return hash('sha256', JSON.stringify([before, link.stream, link.version, link.type, link.time, link.tenant, link.data]), 'hex');
}
