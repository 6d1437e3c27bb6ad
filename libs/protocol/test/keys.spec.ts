import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { canonicalJson, digestOf, operationKey, RunId, Step, Tenant, type Json, type KeyParts } from '../src/index.js';

const here = fileURLToPath(new URL('..', import.meta.url));
const sorted = { z: 1, ä: 2, i: 3, I: 4, 'é': 5, 'e\u0301': 6, '10': 7, '9': 8 };

/** The digest module as JavaScript: another process runs it by itself, in a locale of its own. */
function moduleText(): string {
  const source = readFileSync(`${here}/src/keys.ts`, 'utf8');
  const compile = `import { transformSync } from '@swc/core';
    process.stdout.write(transformSync(${JSON.stringify(source)}, { jsc: { target: 'es2022', parser: { syntax: 'typescript' } } }).code);`;
  return execFileSync(process.execPath, ['--input-type=module', '-e', compile], { cwd: here, encoding: 'utf8' });
}

describe('a digest', () => {
  test('does not depend on the order of members, at any depth', () => {
    expect(digestOf({ a: 1, b: { c: 2, d: 3 } })).toBe(digestOf({ b: { d: 3, c: 2 }, a: 1 }));
    expect(digestOf([1, 2])).not.toBe(digestOf([2, 1]));
  });

  test('knows one number by all its spellings', () => {
    const one = JSON.parse('[1, 1.0, 1e0, 10e-1]') as Json[];
    expect(new Set(one.map(digestOf)).size).toBe(1);
    expect(digestOf(-0)).toBe(digestOf(0));
    expect(digestOf(1)).not.toBe(digestOf('1'));
  });

  test('tells null from an absent member, and empty values from each other', () => {
    const values: Json[] = [{ a: null }, {}, [], [null], null, '', 0, false];
    expect(new Set(values.map(digestOf)).size).toBe(values.length);
  });

  test('tells Unicode spellings apart: nothing is normalised', () => {
    expect(digestOf('é')).not.toBe(digestOf('e\u0301'));
  });

  test('gives a lone surrogate a text of its own, and never throws', () => {
    const values: Json[] = ['\ud800', '\udc00', '\ud801', '\ufffd', '"\\ud800"', '\\ud800', ['\ud800'], { '\ud800': 1 }, { a: '\ud800' }, 'escaped:"\\"\\\\ud800\\""'];
    expect(new Set(values.map(canonicalJson)).size).toBe(values.length);
    expect(new Set(values.map(digestOf)).size).toBe(values.length);
  });

  test('equals another exactly when the values are equal', () => {
    const strings = fc.string({ unit: 'binary', maxLength: 4 }).chain((text) => fc.constantFrom(text, `${text}\ud800`, `\udfff${text}`));
    const { value } = fc.letrec<{ value: Json }>((tie) => ({
      value: fc.oneof({ depthSize: 'small' }, strings, fc.integer(), fc.constant(null), fc.boolean(), fc.array(tie('value'), { maxLength: 3 }), fc.dictionary(strings, tie('value'), { maxKeys: 3 })),
    }));
    const plain = (json: Json): Json => JSON.parse(JSON.stringify(json)) as Json;
    fc.assert(
      fc.property(value, value, (a, b) => {
        expect(digestOf(plain(a))).toBe(digestOf(a));
        let equal = true;
        try {
          expect(plain(a)).toEqual(plain(b));
        } catch {
          equal = false;
        }
        expect(digestOf(a) === digestOf(b)).toBe(equal);
      }),
    );
  });

  test('is the same in every locale', () => {
    const script = `${moduleText()}\nprocess.stdout.write(digestOf(${JSON.stringify(sorted)}));`;
    const digests = ['C', 'tr_TR.UTF-8', 'de_DE.UTF-8', 'sv_SE.UTF-8'].map((locale) =>
      execFileSync(process.execPath, ['--input-type=module', '-e', script], { cwd: here, encoding: 'utf8', env: { ...process.env, LANG: locale, LC_ALL: locale } }),
    );
    expect(new Set([...digests, digestOf(sorted)]).size).toBe(1);
  });

  test('is pinned: recorded digests must stay comparable for ever', () => {
    expect(canonicalJson(sorted)).toBe('{"10":7,"9":8,"I":4,"e\u0301":6,"i":3,"z":1,"ä":2,"é":5}');
    expect(digestOf(sorted)).toBe('8d2192615b93e30a3ea4b3076f43b4667bb6f4522256810447985d04842bc7df');
    expect(digestOf(null)).toBe('74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b');
    expect(digestOf({ a: '\ud800' })).toBe('b2b8d717c13f97846914197bb91a64dacfa263bcbd9f7a568f9109dba206c87e');
    expect(digestOf({ amount: 12.5, currency: 'EUR', lines: [1, 2e21, 1e-7] })).toBe('b7b3ac02a0f5dc7368c27aafcb4b600f5dc38090e7a45ab5eca9bdc5cd5bc4df');
  });
});

describe('an operation key', () => {
  const tenant = Tenant.parse('acme');
  const parts: KeyParts = { scope: 'run', tenant, run: RunId.parse('run-1'), step: Step.parse('3'), tool: 'refund', target: null };
  const target: KeyParts = { scope: 'target', tenant, tool: 'refund', target: 'order-7' };

  test('is pinned: a key given out must mean the same effect for ever', () => {
    expect(operationKey(parts)).toBe('e7f2a82de2cc12d6174fb5314c4f5cec78924d5d2ff3354008441bbfe9754b64');
    expect(operationKey({ ...parts, target: 'order-7' })).toBe('35bc2382c33081104d31ee272502893e026bca77a4777f456fd7328e8b9fecda');
    expect(operationKey(target)).toBe('e7908779242a16fd205d950b7af647df9b8cfc5fd13ab767aaa4298454437437');
  });

  test('differs with each of its parts', () => {
    const others: KeyParts[] = [
      { ...parts, tenant: Tenant.parse('other') },
      { ...parts, run: RunId.parse('run-2') },
      { ...parts, step: Step.parse('3.1') },
      { ...parts, tool: 'charge' },
      { ...parts, target: '' },
      { ...parts, target: 'null' },
      target,
    ];
    expect(new Set([parts, ...others].map(operationKey)).size).toBe(others.length + 1);
  });

  test('of scope target does not depend on who asks', () => {
    expect(operationKey(target)).toBe(operationKey({ scope: 'target', tool: 'refund', target: 'order-7', tenant }));
  });

  test('cannot collide by joining its parts', () => {
    const part = fc.string({ unit: fc.constantFrom('a', 'b', '"', ',', ':', '/', '[', '\\', '\0'), minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(part, part, part, part, (a, b, c, d) => {
        const one = operationKey({ ...target, tool: a, target: b });
        const other = operationKey({ ...target, tool: c, target: d });
        expect(one === other).toBe(a === c && b === d);
      }),
    );
  });
});
