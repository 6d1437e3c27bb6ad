import { describe, expect, test } from '@jest/globals';
import type { z } from 'zod';
import { Attempt, Digest, Fence, Name, Pool, RunId, Step, Tenant, Version, WorkerId } from '../src/index.js';

const identifiers: [string, z.ZodType][] = [
  ['run id', RunId],
  ['tenant', Tenant],
  ['worker id', WorkerId],
];

describe.each(identifiers)('a %s', (_, schema) => {
  test.each<[string, unknown]>([
    ['empty', ''],
    ['too long', 'x'.repeat(201)],
    ['with NUL', 'a\0b'],
    ['with a line break', 'a\nb'],
    ['with a tab', 'a\tb'],
    ['with DEL', 'a\x7fb'],
    ['with a C1 control character', 'a\u0085b'],
    ['with a line separator', 'a\u2028b'],
    ['with a paragraph separator', 'a\u2029b'],
    ['with a lone high surrogate', 'a\ud800'],
    ['with a lone low surrogate', '\udc00a'],
    ['with surrogates the wrong way round', '\udc00\ud800'],
    ['damaged on its way', 'a\ufffd'],
    ['a number', 7],
    ['null', null],
  ])('that is %s is refused', (__, value) => {
    expect(schema.safeParse(value).success).toBe(false);
  });

  test.each(['1', 'x'.repeat(200), 'order 7', 'café', 'cafe\u0301', '😀', '../etc/passwd', "'; drop table --", '__proto__', 'a~b'])('such as %j is taken as it is', (value) => {
    expect(schema.parse(value)).toBe(value);
  });
});

describe('other names', () => {
  const long = (length: number): string => 'a'.repeat(length);

  test.each<[string, z.ZodType, readonly unknown[], readonly unknown[]]>([
    ['run id', RunId, ['~lane/default/0', '~'], ['lane/~']],
    ['step', Step, ['', '0', '01', '1.', '.1', '1.0', '1.01', '-1', '1,2', '1 ', '12345678', '1.1.1.1.1.1.1.1.1', '１', 'a', 1, '1\n'], ['1', '1.1', '1234567', '1.1.1.1.1.1.1.1']],
    ['name', Name, ['', '1a', '_a', 'a b', 'é', `a${long(100)}`, 'a\n'], ['a', 'A.b_c-d:e', long(100)]],
    ['version', Version, ['', '-1', 'v 1', `1${long(50)}`, '1\n'], ['1', '1.2.3+b-4', long(50)]],
    ['pool', Pool, ['', 'A', '-a', 'a.b', 'a_b', `a${long(50)}`, 'a\n'], ['a', 'gpu-2', '0']],
    ['digest', Digest, ['', long(63), 'A'.repeat(64), 'g'.repeat(64), `${long(64)}\n`], [long(64)]],
    ['fence', Fence, [0, -1, 1.5, '1', NaN, Infinity], [1, 7]],
    ['attempt', Attempt, [0, 1001, 1.5], [1, 1000]],
  ])('%s', (_, schema, bad, good) => {
    expect(bad.filter((value) => schema.safeParse(value).success)).toEqual([]);
    expect(good.filter((value) => !schema.safeParse(value).success)).toEqual([]);
  });
});
