import type { EffectClass } from '@holdfast/protocol';
import { TOOLS } from './agents.js';

const CLASS_OF = new Map<string, EffectClass>(TOOLS.map(({ name, effect }) => [name, effect]));

/** Which effect classes messages are about: by the tools that they name, or the operation keys. */
export class EffectIndex {
  readonly #byKey = new Map<string, EffectClass>();

  learn(key: string, effect: EffectClass): void {
    this.#byKey.set(key, effect);
  }

  *in(texts: Iterable<string>): Iterable<EffectClass> {
    for (const text of texts) {
      for (const [, name = ''] of text.matchAll(/"name":"([a-z.]+)"/g)) {
        const effect = CLASS_OF.get(name);
        if (effect !== undefined) yield effect;
      }
      for (const [, key = ''] of text.matchAll(/"key":"([0-9a-f]{64})"/g)) {
        const effect = this.#byKey.get(key);
        if (effect !== undefined) yield effect;
      }
    }
  }
}
