import type { Random } from '@holdfast/runtime';

/** Spreads a text over 32 bits (FNV-1a, then a final mix). */
export function hash32(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i += 1) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/** A small generator (sfc32) whose every draw follows from its seed. */
export class Chance implements Random {
  #a: number;
  #b: number;
  #c: number;
  #count = 1;

  constructor(seed: string) {
    this.#a = hash32(seed);
    this.#b = hash32(`${seed}/b`);
    this.#c = hash32(`${seed}/c`);
    for (let i = 0; i < 8; i += 1) this.next();
  }

  next(): number {
    const t = (this.#a + this.#b + this.#count) | 0;
    this.#count = (this.#count + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + t;
    return (t >>> 0) / 2 ** 32;
  }

  uuid(): string {
    const hex = Array.from({ length: 4 }, () => Math.floor(this.next() * 2 ** 32).toString(16).padStart(8, '0')).join('');
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20)}`;
  }

  /** True this often, in [0, 1]. */
  hits(probability: number): boolean {
    return this.next() < probability;
  }

  /** A whole number from `least` to `most`, both included. */
  whole(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  between(least: number, most: number): number {
    return least + this.next() * (most - least);
  }

  pick<T>(of: readonly [T, ...T[]]): T {
    return of[Math.floor(this.next() * of.length)] ?? of[0];
  }
}
