import type { ArtifactRef } from '@holdfast/protocol';

/** Whose a value is. Without a run: the tenant's, for readers that may see all runs of it. */
export interface ArtifactScope {
  readonly tenant: string;
  readonly run?: string;
}

/** Keeps values that are too large for a message, under the SHA-256 of their bytes. */
export interface ArtifactStore {
  /** Resolves when the bytes are durable. The same bytes in the same scope give the same reference, and begin their retention anew. */
  put(bytes: Uint8Array, about: { readonly mediaType: string; readonly scope: ArtifactScope }): Promise<ArtifactRef>;
  /**
   * The bytes, checked against the reference.
   * @throws ArtifactDenied when the reference belongs to another tenant or run
   * @throws ArtifactMissing when nothing is kept under it (never stored here, or past its retention)
   * @throws ArtifactDamaged when what is kept isn't what was stored
   */
  get(ref: ArtifactRef, scope: ArtifactScope): Promise<Uint8Array>;
  /** Removes what was stored longer ago than a time (milliseconds). */
  sweep(retention: { readonly olderThanMs: number }): Promise<{ readonly removed: number; readonly bytes: number }>;
}

/** The reader has no right to this artifact: asking again changes nothing. */
export class ArtifactDenied extends Error {
  override readonly name = 'ArtifactDenied';
}

/** Nothing is kept under this reference: look whether the store is the right one and how long it keeps things. */
export class ArtifactMissing extends Error {
  override readonly name = 'ArtifactMissing';
}

/** What is kept differs from what was stored: restore it from a backup; its bytes must not be used. */
export class ArtifactDamaged extends Error {
  override readonly name = 'ArtifactDamaged';
}
