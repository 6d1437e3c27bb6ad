import type { ArtifactRef } from '@holdfast/protocol';

/** Where results go that are too large for a message; `ArtifactStore` of `@holdfast/runtime` is one. */
export interface ArtifactPort {
  /** Keeps bytes for a scope, and gives their reference. Resolves when they are kept for good; the same bytes again are the same reference. */
  put(bytes: Uint8Array, about: { readonly mediaType: string; readonly scope: { readonly tenant: string; readonly run?: string } }): Promise<ArtifactRef>;
}

/** Where large values are kept; what `openArtifactStore` of `@holdfast/runtime/artifacts` opens is one. */
export interface ServedArtifacts extends ArtifactPort {
  /** Verifies the checksum, and that the scope may read it. */
  get(ref: ArtifactRef, scope: { readonly tenant: string; readonly run?: string }): Promise<Uint8Array>;
}
