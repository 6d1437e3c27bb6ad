/**
 * JSON as it may cross a border: I-JSON (RFC 7493).
 *
 * Strings keep NUL and lone surrogates (they are escaped in JSON text, so they come back exactly);
 * numbers that a double can't hold exactly as an integer are refused, as is a `__proto__` member,
 * since either would silently become something else on the way.
 */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [member: string]: Json };

export type JsonParse =
  | { readonly ok: true; readonly value: Json }
  | { readonly ok: false; readonly because: 'not_json' | 'too_deep' | 'unsafe_number' | 'proto_member'; readonly message: string };

/** How many lists and objects a value that somebody gives may hold within one another: what is deeper is refused, however much stack is left to whoever reads it. */
export const JSON_DEPTH_MAX = 500;
/** Of a message from outside: a value, and what it is wrapped in. */
export const MESSAGE_DEPTH_MAX = JSON_DEPTH_MAX + 16;
/** Of anything that is read. Services wrap what came in once more, as in a history that goes with a grant. */
const READ_DEPTH_MAX = JSON_DEPTH_MAX + 64;

/** Where a number of sixteen digits or more, or one with an exponent, may stand: hexadecimal text has none. */
const MAYBE_UNSAFE_NUMBER = /(?:^|[[,:])\s*-?(?:\d{16}|\d+(?:\.\d+)?[eE])/;
const STRING_LITERAL = /"(?:[^"\\]|\\.)*"/gs;
const NUMBER_LITERAL = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const MAYBE_PROTO = /__proto__|\\u00[567]/i;

/**
 * Parses JSON text; never throws. Says which rule a text breaks and where to look.
 * `depthMax`: how many levels it may have; the default has room for whatever a service wrote.
 */
export function parseJson(text: string, depthMax = READ_DEPTH_MAX): JsonParse {
  // Before anything that walks the value and calls itself.
  if (isDeeper(text, depthMax)) return { ok: false, because: 'too_deep', message: `lists and objects are nested more than ${depthMax} levels deep` };
  let value: Json;
  try {
    value = JSON.parse(text) as Json;
  } catch (error) {
    return { ok: false, because: 'not_json', message: `value is not JSON: ${(error as Error).message}` };
  }
  if (MAYBE_UNSAFE_NUMBER.test(text)) {
    const unsafe = firstUnsafeNumber(text);
    if (unsafe !== undefined) {
      return {
        ok: false,
        because: 'unsafe_number',
        message: `number ${unsafe} can't be held exactly (beyond 2^53); send it as a string`,
      };
    }
  }
  if (MAYBE_PROTO.test(text) && hasProtoMember(value)) {
    return { ok: false, because: 'proto_member', message: 'a member is named "__proto__"; rename it' };
  }
  return { ok: true, value };
}

const [QUOTE, BACKSLASH, LIST, LIST_END, OBJECT, OBJECT_END] = Array.from('"\\[]{}', (sign) => sign.charCodeAt(0));

function isDeeper(text: string, depthMax: number): boolean {
  // Each level takes a sign to open it and, in JSON, one to close it.
  if (text.length < 2 * depthMax) return false;
  let depth = 0;
  let quoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const sign = text.charCodeAt(at);
    if (quoted) {
      if (sign === BACKSLASH) at += 1;
      else if (sign === QUOTE) quoted = false;
    } else if (sign === QUOTE) quoted = true;
    else if (sign === LIST || sign === OBJECT) {
      depth += 1;
      if (depth > depthMax) return true;
    } else if (sign === LIST_END || sign === OBJECT_END) depth -= 1;
  }
  return false;
}

function firstUnsafeNumber(text: string): string | undefined {
  // Digits inside strings are text, not numbers.
  const bare = text.replace(STRING_LITERAL, '""');
  for (const literal of bare.match(NUMBER_LITERAL) ?? []) {
    if (!isExactNumber(Number(literal))) return literal;
  }
  return undefined;
}

/** True for every number that JSON can carry without loss: finite, and safe when it is an integer. */
export function isExactNumber(value: number): boolean {
  return Number.isFinite(value) && (!Number.isInteger(value) || Number.isSafeInteger(value));
}

function hasProtoMember(value: Json): boolean {
  if (value === null || typeof value !== 'object') return false;
  if (Array.isArray(value)) return value.some(hasProtoMember);
  const record = value as { readonly [member: string]: Json };
  return Object.keys(record).some((name) => name === '__proto__' || hasProtoMember(record[name] ?? null));
}
