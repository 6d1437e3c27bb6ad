import { createHash } from 'node:crypto';
import type { ArtifactRef } from '@holdfast/protocol';
import type { ArtifactScope } from './store.js';

/** A reference's scope has at most 300 characters; each of its two parts has this many. */
const PART_CHARS_MAX = 140;

/** Text of one part: readable where it is short, else its hash. `=` and `/` occur in no readable part, so that no two scopes share a text. */
function part(id: string): string {
  const readable = encodeURIComponent(id);
  return readable.length <= PART_CHARS_MAX ? readable : `=${createHash('sha256').update(id).digest('hex')}`;
}

/** A scope as it stands in a reference. */
export const scopeText = (scope: ArtifactScope): string => (scope.run === undefined ? part(scope.tenant) : `${part(scope.tenant)}/${part(scope.run)}`);

/** Whether who acts for a scope may read what a reference names: the same run, or, for a reader without a run, the same tenant. */
export function mayRead(ref: ArtifactRef, scope: ArtifactScope): boolean {
  const mine = scopeText(scope);
  return ref.scope === mine || (scope.run === undefined && ref.scope.startsWith(`${mine}/`));
}
