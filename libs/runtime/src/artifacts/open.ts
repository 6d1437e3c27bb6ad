import { fileArtifactStore } from './file-store.js';
import type { ArtifactStore } from './store.js';

/**
 * The store that a place names: `s3://bucket/prefix`, or else a folder. S3's client is loaded only
 * where it is asked for.
 * @throws Error the place is neither
 */
export async function openArtifactStore(place: string): Promise<ArtifactStore> {
  const scheme = /^([a-z][a-z0-9+.-]+):\/\//i.exec(place)?.[1]?.toLowerCase();
  if (scheme === undefined) return fileArtifactStore(place);
  const [, bucket, prefix] = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/+([A-Za-z0-9!_.*'()/-]*?))?\/*$/i.exec(place) ?? [];
  if (bucket === undefined) throw new Error(`artifacts at ${JSON.stringify(place)}: not a place for them; name a folder, or s3://bucket/prefix with letters, digits and !_.*'()/- in the prefix`);
  const { s3ArtifactStore } = await import('./s3-store.js');
  return s3ArtifactStore({ bucket, prefix: prefix ?? '' });
}
