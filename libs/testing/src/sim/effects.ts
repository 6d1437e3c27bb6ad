import type { EffectClass } from '@holdfast/protocol';
import { KINDS } from './settling.js';

const CLASS_OF = new Map<string, EffectClass>(KINDS.map(({ name, effect }) => [name, effect]));

const KEYS = /"key":"([0-9a-f]{64})"/g;

/** Which effect classes messages are about: by the tools that they name, or the operation keys. */
export class EffectIndex {
  readonly #byKey = new Map<string, { readonly effect: EffectClass; readonly tool: string }>();

  learn(key: string, effect: EffectClass, tool: string): void {
    this.#byKey.set(key, { effect, tool });
  }

  /** Whether messages are about a tool. */
  areAbout(texts: Iterable<string>, tool: string): boolean {
    for (const text of texts) {
      if (text.includes(`"name":"${tool}"`)) return true;
      for (const [, key = ''] of text.matchAll(KEYS)) if (this.#byKey.get(key)?.tool === tool) return true;
    }
    return false;
  }

  *in(texts: Iterable<string>): Iterable<EffectClass> {
    for (const text of texts) {
      for (const [, name = ''] of text.matchAll(/"name":"([a-z.]+)"/g)) {
        const effect = CLASS_OF.get(name);
        if (effect !== undefined) yield effect;
      }
      for (const [, key = ''] of text.matchAll(KEYS)) {
        const effect = this.#byKey.get(key)?.effect;
        if (effect !== undefined) yield effect;
      }
    }
  }
}
