import { describe, expect, it } from '@jest/globals';
import { jsonOf } from '../src/http/body.js';
import { Problem } from '../src/http/problem.js';

const JSON_TYPE = 'application/json';
const lists = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels);

/** The code of the problem that it is refused with, and what that says. */
function refused(bytes: Uint8Array, contentType = JSON_TYPE): [string, string] | null {
  try {
    jsonOf(bytes, contentType);
    return null;
  } catch (error) {
    if (error instanceof Problem) return [error.code, error.message];
    throw error;
  }
}

describe('a body', () => {
  it.each([JSON_TYPE, `${JSON_TYPE}; charset=utf-8`, `${JSON_TYPE};charset="UTF-8"`, `${JSON_TYPE}; charset=utf8`])('in %s is read as it was sent', (contentType) => {
    expect(jsonOf(Buffer.from('{"a":"ä😀\ufffd\\ud800"}'), contentType)).toEqual({ a: 'ä😀\ufffd\ud800' });
  });

  it.each<[string, number[]]>([
    ['a byte that none begins with', [0x22, 0xff, 0x22]],
    ['a character that breaks off', [0x22, 0xc3, 0x22]],
    ['half a surrogate pair', [0x22, 0xed, 0xa0, 0x80, 0x22]],
  ])('that is no UTF-8 is refused: %s', (_, bytes) => {
    expect(refused(Uint8Array.from(bytes))).toEqual(['invalid-request', 'the body is no UTF-8']);
  });

  it.each(['utf-16', 'iso-8859-1', '"latin1"', 'UTF-7'])('in the charset %s is refused', (charset) => {
    expect(refused(Buffer.from('1'), `${JSON_TYPE}; charset=${charset}`)).toMatchObject(['unsupported-media-type', expect.stringContaining(charset.replaceAll('"', ''))]);
  });

  it('that is nested deeper than any value may be is refused, however deep', () => {
    expect(refused(Buffer.from(lists(500)))).toBeNull();
    for (const levels of [501, 5000, 100_000]) expect(refused(Buffer.from(lists(levels)))).toMatchObject(['invalid-request', expect.stringMatching(/nested more than 500 levels deep/)]);
  });

  it.each(['', '{', '{"n":9007199254740993}'])('such as %j is refused', (text) => {
    expect(refused(Buffer.from(text))).toMatchObject(['invalid-request', expect.anything()]);
  });
});
