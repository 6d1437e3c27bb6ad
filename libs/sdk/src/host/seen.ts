import type { Envelope } from '@holdfast/protocol';

/** The last `ce_seq` seen, by source; immutable, so that a task can keep the one that was true when it came. */
export type Seen = ReadonlyMap<string, number>;

export const NOTHING_SEEN: Seen = new Map();

export type Arrival =
  | { readonly kind: 'new'; readonly seen: Seen }
  | { readonly kind: 'duplicate' }
  | { readonly kind: 'gap'; readonly source: string; readonly last: number; readonly prev: number }
  /** Not written by a service: it has no number, so that nobody could tell a second delivery of it. */
  | { readonly kind: 'unnumbered' };

/**
 * What a service's message is to a lane that has seen others. A source never seen before has no
 * gap to show: what came before it may have outlived its retention.
 */
export function arrive(seen: Seen, lane: number, envelope: Envelope): Arrival {
  const { seq } = envelope;
  if (seq === undefined) return { kind: 'unnumbered' };
  // A service's lane is the partition it writes to; another number would be counted apart.
  const source = envelope.lane === undefined || envelope.lane === lane ? envelope.source : `${envelope.source}#${envelope.lane}`;
  const last = seen.get(source);
  if (last !== undefined && seq <= last) return { kind: 'duplicate' };
  if (last !== undefined && envelope.prev !== undefined && envelope.prev > last) return { kind: 'gap', source, last, prev: envelope.prev };
  const next = new Map(seen);
  next.delete(source); // The source heard last stands last: where room is short, the oldest go.
  next.set(source, seq);
  return { kind: 'new', seen: next };
}

/** Kafka's default limit on a commit's metadata is 4096 bytes. */
const METADATA_BYTES_MAX = 4000;

/** Metadata of a commit. Sources that were not heard for longest are left out where they don't fit. */
export function encodeSeen(seen: Seen): string {
  const entries = [...seen];
  for (let from = 0; ; from += 1) {
    const text = JSON.stringify(Object.fromEntries(entries.slice(from)));
    if (Buffer.byteLength(text) <= METADATA_BYTES_MAX) return text;
  }
}

/** Reads a commit's metadata; null when there is none or it is unreadable: then the partition itself is to be read. */
export function decodeSeen(metadata: string): Seen | null {
  if (metadata === '') return null;
  try {
    const value: unknown = JSON.parse(metadata);
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return null;
    const entries = Object.entries(value);
    const sound = entries.every((entry): entry is [string, number] => Number.isSafeInteger(entry[1]) && entry[1] >= 0);
    return sound ? new Map(entries) : null;
  } catch {
    return null;
  }
}
