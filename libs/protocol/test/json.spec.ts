import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { isExactNumber, JSON_DEPTH_MAX, MESSAGE_DEPTH_MAX, parseJson } from '../src/index.js';

describe('JSON at the border', () => {
  test.each<[string, string, unknown]>([
    ['NUL in a string', '"a\\u0000b"', 'a\0b'],
    ['a lone high surrogate', '"\\ud800"', '\ud800'],
    ['a lone low surrogate as a member’s name', '{"\\udc00":1}', { '\udc00': 1 }],
    ['the largest safe integer', '9007199254740991', 2 ** 53 - 1],
    ['the smallest safe integer', '-9007199254740991', -(2 ** 53 - 1)],
    ['long digits inside a string', '"12345678901234567890"', '12345678901234567890'],
    ['a large exponent inside a string', '{"a":"1e400"}', { a: '1e400' }],
    ['digits behind an escaped quote', '"\\"9007199254740993"', '"9007199254740993'],
    ['digits behind an escaped backslash', '["\\\\", 1]', ['\\', 1]],
    ['a fraction with many digits', '0.12345678901234567', 0.12345678901234567],
    ['a small exponent', '1e-400', 0],
    ['a harmless exponent', '1e3', 1000],
    ['the word __proto__ as a value', '["__proto__"]', ['__proto__']],
    ['other members of objects', '{"constructor":1,"__proto":2}', { constructor: 1, __proto: 2 }],
  ])('%s is kept exactly', (_, text, value) => {
    expect(parseJson(text)).toEqual({ ok: true, value });
  });

  test.each<[string, string, string, RegExp]>([
    ['2^53', '9007199254740992', 'unsafe_number', /9007199254740992 can't be held exactly/],
    ['2^53 + 1, nested', '{"a":[1,{"b":9007199254740993}]}', 'unsafe_number', /9007199254740993/],
    ['-2^53', '-9007199254740992', 'unsafe_number', /-9007199254740992/],
    ['2^53 + 1 with a fraction', '9007199254740993.0', 'unsafe_number', /9007199254740993.0/],
    ['beyond every double', '1e400', 'unsafe_number', /1e400/],
    ['beyond every double, negative', '[-1E+400]', 'unsafe_number', /-1E\+400/],
    ['a large exponent', '1e16', 'unsafe_number', /1e16/],
    ['an unsafe number next to a string of digits', '{"a":"1234567890123456","b":12345678901234567890}', 'unsafe_number', /12345678901234567890/],
    ['an unsafe number behind white space', '{"a":[1 ,\t\n  -9007199254740993 ]}', 'unsafe_number', /-9007199254740993/],
    ['white space and an unsafe number, alone', ' \n1e23', 'unsafe_number', /1e23/],
    ['a fraction with a large exponent', '{"a" : 1.5e300}', 'unsafe_number', /1.5e300/],
    ['__proto__', '{"__proto__":1}', 'proto_member', /__proto__/],
    ['__proto__ nested in a list', '[0,{"a":{"__proto__":{}}}]', 'proto_member', /__proto__/],
    ['__proto__ escaped', '{"\\u005f_proto__":1}', 'proto_member', /__proto__/],
    ['__proto__ escaped in its middle', '{"__\\u0070roto__":1}', 'proto_member', /__proto__/],
    ['__proto__ escaped in its last letter but two', '{"__prot\\u006F__":1}', 'proto_member', /__proto__/],
    ['__proto__ beneath __proto__', '{"a":{"\\u005F\\u005Fproto\\u005f\\u005f":null}}', 'proto_member', /__proto__/],
    ['nothing', '', 'not_json', /not JSON/],
    ['a trailing comma', '[1,]', 'not_json', /not JSON/],
    ['NaN', 'NaN', 'not_json', /not JSON/],
    ['a bare control character', '"\u0000"', 'not_json', /not JSON/],
  ])('%s is refused', (_, text, because, message) => {
    expect(parseJson(text)).toMatchObject({ ok: false, because, message: expect.stringMatching(message) });
  });

  const lists = (levels: number, inside = ''): string => `${'['.repeat(levels)}${inside}${']'.repeat(levels)}`;
  const objects = (levels: number, inside = '1'): string => `${'{"a":'.repeat(levels)}${inside}${'}'.repeat(levels)}`;

  test.each<[string, string]>([
    ['lists', lists(JSON_DEPTH_MAX)],
    ['objects', objects(JSON_DEPTH_MAX)],
    ['lists side by side', `[${Array.from({ length: 5000 }, () => '[]').join()}]`],
    ['brackets in a string', JSON.stringify('['.repeat(5000))],
    ['brackets behind an escaped quote', JSON.stringify(`"${'{'.repeat(5000)}`)],
    ['brackets behind an escaped backslash', `["\\\\",${JSON.stringify('['.repeat(5000))}]`],
  ])('as many levels as a value may have are taken: %s', (_, text) => {
    expect(parseJson(text, JSON_DEPTH_MAX)).toEqual({ ok: true, value: JSON.parse(text) as unknown });
  });

  test.each<[string, string]>([
    ['lists, one more than may be', lists(JSON_DEPTH_MAX + 1)],
    ['objects, one more than may be', objects(JSON_DEPTH_MAX + 1)],
    ['lists that nobody closed', '['.repeat(2 * JSON_DEPTH_MAX)],
    ['a million', lists(1_000_000)],
    ['a million beside an unsafe number', `[1e400,${lists(1_000_000)}]`],
    ['a million around __proto__', objects(1_000_000, '{"__proto__":1}')],
    ['behind a string that ends in a backslash', `["\\\\",${lists(JSON_DEPTH_MAX)}]`],
  ])('deeper ones are refused for their depth, whatever else is wrong with them: %s', (_, text) => {
    expect(parseJson(text, JSON_DEPTH_MAX)).toEqual({ ok: false, because: 'too_deep', message: 'lists and objects are nested more than 500 levels deep' });
  });

  test('a message has room around the deepest value, and whoever reads what a service made of it has more', () => {
    expect(parseJson(objects(5, lists(JSON_DEPTH_MAX)), MESSAGE_DEPTH_MAX).ok).toBe(true);
    expect(parseJson(objects(20, lists(MESSAGE_DEPTH_MAX)))).toMatchObject({ ok: true });
    expect(parseJson(lists(1800))).toMatchObject({ ok: false, because: 'too_deep' });
  });

  test('never throws, and what it takes is what JSON.parse makes of it', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.json()), (text) => {
        const parsed = parseJson(text);
        if (parsed.ok) expect(parsed.value).toEqual(JSON.parse(text));
      }),
    );
  });

  test('whatever number it takes is the one that was written', () => {
    const space = fc.constantFrom('', ' ', '\n', ' \t ');
    const literal = fc.tuple(fc.constantFrom('', '-'), fc.bigInt({ min: 0n, max: 10n ** 22n }), fc.constantFrom('', '.0', '.5', 'e2', 'E+20', '.25e3', 'e-2')).map((parts) => parts.join(''));
    const around = fc.constantFrom<readonly [string, string]>(['', ''], ['[', ']'], ['{"a":', '}'], ['["1e400",', ']'], ['{"a":[0,', ',"b"]}'], ['[1,[[', ']]]']);
    fc.assert(
      fc.property(around, space, literal, space, ([before, after], left, number, right) => {
        expect(parseJson(`${before}${left}${number}${right}${after}`).ok).toBe(isExactNumber(Number(number)));
      }),
    );
  });

  test('exact numbers', () => {
    expect([0, -0, 1.5, 2 ** 53 - 1, 5e-324].every(isExactNumber)).toBe(true);
    expect([2 ** 53, -(2 ** 53), Infinity, -Infinity, NaN, 1e300].some(isExactNumber)).toBe(false);
  });
});
