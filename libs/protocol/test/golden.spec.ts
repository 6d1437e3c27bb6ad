import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from '@jest/globals';
import { z } from 'zod';
import {
  auditMessages,
  caseMessages,
  contractMessages,
  deadLetterMessages,
  decoder,
  effectMessages,
  intentMessages,
  operatorMessages,
  parseJson,
  runMessages,
  runTaskMessages,
  toolResultMessages,
  toolTaskMessages,
  workerMessages,
  type Json,
  type MessageType,
} from '../src/index.js';
import * as protocol from '../src/index.js';

/*
 * Messages of each type as they were first written, kept for ever: a version that can't read one can't
 * read what is on the log. Files are added, never changed: `Type.json`, then `Type.2.json` and so on where
 * a type learns members, or has alternatives. Together they hold every member that the type knows.
 */
const folder = new URL('golden/', import.meta.url);
const topics: readonly (readonly MessageType[])[] = [
  auditMessages,
  caseMessages,
  contractMessages,
  deadLetterMessages,
  effectMessages,
  intentMessages,
  operatorMessages,
  runMessages,
  runTaskMessages,
  toolResultMessages,
  toolTaskMessages,
  workerMessages,
];
const types = topics.flat();
const files = readdirSync(folder)
  .map((file) => ({ file, type: file.split('.')[0] ?? '', number: Number(/\.(\d+)\.json$/.exec(file)?.[1] ?? 1) }))
  .sort((a, b) => a.type.localeCompare(b.type) || a.number - b.number);
const filesOf = (type: string): typeof files => files.filter((each) => each.type === type);

const golden = (file: string): Json => {
  const parsed = parseJson(readFileSync(new URL(file, folder), 'utf8'));
  if (!parsed.ok) throw new Error(parsed.message);
  return parsed.value;
};

/** Members that a schema knows and that none of the values has. Of alternatives, only those that a value takes are looked at. */
function missing(schema: unknown, values: readonly unknown[], path = ''): string[] {
  if (values.length === 0) return [];
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable) return missing(schema.unwrap(), values.filter((value) => value !== null), path);
  if (schema instanceof z.ZodArray) return missing(schema.element, values.flat(), `${path}[]`);
  if (schema instanceof z.ZodUnion) return schema.options.flatMap((option) => missing(option, values.filter((value) => z.safeParse(option, value).success), path));
  if (!(schema instanceof z.ZodObject)) return [];
  return Object.entries(schema.shape).flatMap(([name, member]) => {
    const found = values.filter((value) => Object.hasOwn(value as object, name)).map((value) => (value as Record<string, unknown>)[name]);
    return found.length === 0 ? [`${path}.${name}`] : missing(member, found, `${path}.${name}`);
  });
}

describe('golden messages', () => {
  test('there is at least one for each message type, numbered without a gap, and none of another', () => {
    expect([...new Set(files.map(({ type }) => type))].sort()).toEqual(types.map(({ type }) => type).sort());
    for (const { type } of types) expect(filesOf(type).map(({ file }) => file)).toEqual(filesOf(type).map((_, index) => (index === 0 ? `${type}.json` : `${type}.${index + 1}.json`)));
  });

  test('each message type that is declared belongs to a topic', () => {
    const declared = Object.values(protocol as Record<string, unknown>).filter((value) => typeof value === 'function' && 'type' in value && 'schema' in value);
    expect(declared.map((type) => (type as unknown as MessageType).type).sort()).toEqual(types.map(({ type }) => type).sort());
  });

  test.each(types.flatMap((type) => filesOf(type.type).map(({ file }) => [file, type] as const)))('%s is read whole', (file, type) => {
    const data = golden(file);
    // Nothing is dropped: the file names no member that the type doesn't know.
    expect(decoder([type])(type.type, data)).toEqual({ ok: true, message: { type: type.type, data } });
  });

  test.each(types.map((type) => [type.type, type] as const))('%s: its files hold every member that it knows', (name, type) => {
    expect(missing(type.schema, filesOf(name).map(({ file }) => golden(file)))).toEqual([]);
  });

  test('a type that is not known, and data that does not fit, are named', () => {
    expect(decoder(intentMessages)('RunAccepted', {})).toMatchObject({ ok: false, because: 'unknown_type', message: expect.stringContaining('StartRun') });
    expect(decoder(intentMessages)('FinishRun', { ending: { status: 'done' } })).toMatchObject({ ok: false, because: 'invalid', message: expect.stringContaining('ending.status') });
  });

  test('members that a later version adds are dropped on read', () => {
    expect(decoder(runMessages)('StepsReported', { later: 1 })).toEqual({ ok: true, message: { type: 'StepsReported', data: {} } });
  });
});
