import { createHash } from 'node:crypto';

/** Short names of lists that only grow: what has been added since the last look is all that is read. */
export class Digests {
  readonly #known = new Map<string, { length: number; digest: string }>();

  upTo(list: string, items: readonly unknown[]): string {
    const known = this.#known.get(list) ?? { length: 0, digest: '' };
    for (; known.length < items.length; known.length += 1) known.digest = createHash('sha1').update(known.digest).update(JSON.stringify(items[known.length])).digest('base64');
    this.#known.set(list, known);
    return known.digest;
  }
}
