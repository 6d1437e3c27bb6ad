import { isExactNumber, JSON_DEPTH_MAX, type Json } from '@holdfast/protocol';
import type { z } from 'zod';
import { NotJson } from '../errors.js';

/**
 * `T` when each of its values is JSON, else something that `T` can't be assigned to. `unknown` and
 * `any` pass: what they hold is checked when it is there.
 */
export type JsonCompatible<T> = [T] extends [Json]
  ? T
  : unknown extends T
    ? T
    : T extends null | boolean | number | string
      ? T
      : T extends bigint | symbol | undefined | ((...args: never[]) => unknown)
        ? never
        : T extends readonly unknown[]
          ? { readonly [I in keyof T]: JsonCompatible<T[I]> }
          : T extends object
            ? { readonly [M in keyof T]: M extends string ? JsonMember<T, M> : never }
            : never;

/** An optional member may be absent, and zod gives it `undefined` in its type. */
type JsonMember<T, M extends keyof T> = string extends M
  ? JsonCompatible<T[M]>
  : Record<never, never> extends Pick<T, M>
    ? JsonCompatible<Exclude<T[M], undefined>> | undefined
    : JsonCompatible<T[M]>;

/** What a schema that isn't JSON is measured against; its name is what the compiler shows. */
export interface ThisSchemaIsNotJson<Which extends string> {
  readonly 'holds a bigint, Date, undefined, function, Map or the like: use strings, numbers, null': Which;
}

/** `unknown` when both sides of a schema are JSON: `schema: S & JsonSchema<S>` compiles only then. */
export type JsonSchema<S extends z.ZodType> =
  z.input<S> extends JsonCompatible<z.input<S>> ? (z.output<S> extends JsonCompatible<z.output<S>> ? unknown : ThisSchemaIsNotJson<'output'>) : ThisSchemaIsNotJson<'input'>;

/** JSON text of a value above this many bytes doesn't travel inside a message. */
export const INLINE_BYTES_MAX = 200 * 1024;
/** Up to here an upper bound of the size will do; above it the size is counted. */
const EXACT_ABOVE_BYTES = 16 * 1024;

export interface SizedJson {
  /** A copy: what its owner does to the original later changes nothing. */
  readonly value: Json;
  /** Bytes of its JSON text: exact when large, else an upper bound. */
  readonly bytes: number;
}

/**
 * Copies a value as JSON and measures it, in one pass.
 * @throws NotJson with the path to the first thing that JSON would lose or change
 */
export function toJson(value: unknown, what: string): SizedJson {
  bytesSeen = 0;
  const copy = copyOf(value, 0);
  if (copy === FAULT) throw explain(value, what);
  const bytes = bytesSeen > EXACT_ABOVE_BYTES ? Buffer.byteLength(JSON.stringify(copy)) : bytesSeen;
  return { value: copy, bytes };
}

// The copy is the hot path: it keeps no path and makes no error. `explain` walks again where it failed.
const FAULT = Symbol('not JSON');
let bytesSeen = 0;

function copyOf(value: unknown, depth: number): Json | typeof FAULT {
  switch (typeof value) {
    case 'string':
      bytesSeen += value.length * 6 + 3; // The longest form of one UTF-16 unit is \uXXXX.
      return value;
    case 'number':
      bytesSeen += 25;
      // JSON has no -0; a replay would see 0.
      return isExactNumber(value) ? value + 0 : FAULT;
    case 'boolean':
      bytesSeen += 6;
      return value;
    case 'object':
      if (value === null) {
        bytesSeen += 5;
        return null;
      }
      if (depth >= JSON_DEPTH_MAX) return FAULT;
      return Array.isArray(value) ? copyOfArray(value, depth) : copyOfObject(value, depth);
    default:
      return FAULT;
  }
}

function copyOfArray(value: readonly unknown[], depth: number): Json | typeof FAULT {
  bytesSeen += 3;
  const copy: Json[] = [];
  for (let index = 0; index < value.length; index += 1) {
    const member = copyOf(value[index], depth + 1);
    if (member === FAULT) return FAULT;
    copy.push(member);
  }
  return copy;
}

function copyOfObject(value: object, depth: number): Json | typeof FAULT {
  if (!isPlain(value)) return FAULT;
  bytesSeen += 3;
  const copy: Record<string, Json> = {};
  for (const name of Object.keys(value)) {
    if (name === '__proto__') return FAULT;
    const member = copyOf((value as Record<string, unknown>)[name], depth + 1);
    if (member === FAULT) return FAULT;
    bytesSeen += name.length * 6 + 4;
    copy[name] = member;
  }
  return copy;
}

/** An object literal of any realm: its prototype is null or a root. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || (Object.getPrototypeOf(prototype) === null && Object.prototype.toString.call(value) === '[object Object]');
}

function explain(value: unknown, what: string): NotJson {
  const fault = firstFault(value, '$', new Set());
  return new NotJson(what, fault?.path ?? '$', fault?.found ?? 'something that changed while it was read');
}

interface Fault {
  readonly path: string;
  readonly found: string;
}

function firstFault(value: unknown, path: string, above: Set<object>): Fault | undefined {
  const fault = (found: string): Fault => ({ path, found });
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return undefined;
    case 'number':
      if (isExactNumber(value)) return undefined;
      return fault(Number.isFinite(value) ? `the integer ${value}, beyond what a number holds exactly; send it as a string` : String(value));
    case 'bigint':
      return fault('a bigint; send it as a string');
    case 'undefined':
      return fault('undefined; leave the member out or use null');
    case 'function':
    case 'symbol':
      return fault(`a ${typeof value}`);
    case 'object':
      if (value === null) return undefined;
      if (above.has(value)) return fault('a cycle: it holds itself');
      if (above.size >= JSON_DEPTH_MAX) return fault(`nested more than ${JSON_DEPTH_MAX} levels deep`);
      if (!Array.isArray(value) && !isPlain(value)) return fault(describeInstance(value));
      return firstFaultInside(value, path, above);
  }
}

function firstFaultInside(value: object, path: string, above: Set<object>): Fault | undefined {
  above.add(value);
  const names = Array.isArray(value) ? value.keys() : Object.keys(value);
  for (const name of names) {
    const memberPath = typeof name === 'number' ? `${path}[${name}]` : /^[A-Za-z_$][\w$]*$/.test(name) ? `${path}.${name}` : `${path}[${JSON.stringify(name)}]`;
    if (name === '__proto__') return { path: memberPath, found: 'a member named "__proto__"; rename it' };
    const fault = firstFault((value as Record<string | number, unknown>)[name], memberPath, above);
    if (fault !== undefined) return fault;
  }
  above.delete(value);
  return undefined;
}

function describeInstance(value: object): string {
  if (value instanceof Date || Object.prototype.toString.call(value) === '[object Date]') return 'a Date; send its ISO text or epoch milliseconds';
  const name: unknown = value.constructor?.name;
  return `an instance of ${typeof name === 'string' && name !== '' ? name : 'a class'}; give its plain data`;
}

/** Deep equality of a value with recorded JSON; anything that isn't JSON is unequal. */
export function equalsJson(value: unknown, json: Json): boolean {
  if (value === json) return true;
  if (typeof value !== 'object' || typeof json !== 'object' || value === null || json === null) return false;
  if (Array.isArray(json)) return Array.isArray(value) && value.length === json.length && json.every((member, index) => equalsJson(value[index], member));
  if (Array.isArray(value)) return false;
  const names = Object.keys(json);
  const record = json as { readonly [member: string]: Json };
  return Object.keys(value).length === names.length && names.every((name) => name in value && equalsJson((value as Record<string, unknown>)[name], record[name] ?? null));
}
