import { ArtifactRef } from '@holdfast/protocol';
import { sha256 } from './digest.js';
import { mayRead, scopeText } from './scope.js';
import { ArtifactDamaged, ArtifactDenied, ArtifactMissing, type ArtifactScope } from './store.js';

/** The reference under which bytes are kept. */
export function refOf(bytes: Uint8Array, { mediaType, scope }: { readonly mediaType: string; readonly scope: ArtifactScope }): ArtifactRef {
  return ArtifactRef.parse({ sha256: sha256(bytes), bytes: bytes.byteLength, mediaType, scope: scopeText(scope) });
}

/** The same reference, if a reader may follow it. Its form is checked too, since part of it becomes a path. */
export function permitted(ref: ArtifactRef, scope: ArtifactScope): ArtifactRef {
  const parsed = ArtifactRef.parse(ref);
  if (!mayRead(parsed, scope)) throw new ArtifactDenied(`artifact ${parsed.sha256} belongs to scope ${parsed.scope}; asked for ${scopeText(scope)}`);
  return parsed;
}

/** The same bytes, if they are what was stored. */
export function intact<Bytes extends Uint8Array>(ref: ArtifactRef, bytes: Bytes): Bytes {
  const found = sha256(bytes);
  if (found !== ref.sha256 || bytes.byteLength !== ref.bytes) throw damaged(ref, `what is kept has SHA-256 ${found} and ${bytes.byteLength} bytes`);
  return bytes;
}

export const damaged = (ref: ArtifactRef, how: string): ArtifactDamaged => new ArtifactDamaged(`artifact ${ref.sha256} (${ref.bytes} bytes) is damaged: ${how}; restore it from a backup`);

export const missing = (ref: ArtifactRef, cause?: unknown): ArtifactMissing =>
  new ArtifactMissing(`no artifact ${ref.sha256} in scope ${ref.scope}: another store, or past its retention`, cause === undefined ? {} : { cause });
