import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from '@jest/globals';
import {
  contractMessages,
  deadLetterMessages,
  decoder,
  effectMessages,
  intentMessages,
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
 * One message of each type as it was first written, kept for ever: a version that can't read it can't
 * read what is on the log. Each holds every member that its type knows. Files are added, never changed.
 */
const folder = new URL('golden/', import.meta.url);
const topics: readonly (readonly MessageType[])[] = [contractMessages, deadLetterMessages, effectMessages, intentMessages, runMessages, runTaskMessages, toolResultMessages, toolTaskMessages, workerMessages];
const types = topics.flat();
const files = readdirSync(folder).sort();

const golden = (type: string): Json => {
  const parsed = parseJson(readFileSync(new URL(`${type}.json`, folder), 'utf8'));
  if (!parsed.ok) throw new Error(parsed.message);
  return parsed.value;
};

describe('golden messages', () => {
  test('there is one for each message type, and no other', () => {
    expect(files).toEqual(types.map(({ type }) => `${type}.json`).sort());
  });

  test('each message type that is declared belongs to a topic', () => {
    const declared = Object.values(protocol as Record<string, unknown>).filter((value) => typeof value === 'function' && 'type' in value && 'schema' in value);
    expect(declared.map((type) => (type as unknown as MessageType).type).sort()).toEqual(types.map(({ type }) => type).sort());
  });

  test.each(types.map((type) => [type.type, type] as const))('%s is read whole', (name, type) => {
    const data = golden(name);
    // Nothing is dropped: the file names no member that the type doesn't know.
    expect(decoder([type])(name, data)).toEqual({ ok: true, message: { type: name, data } });
  });

  test('a type that is not known, and data that does not fit, are named', () => {
    expect(decoder(intentMessages)('RunAccepted', {})).toMatchObject({ ok: false, because: 'unknown_type', message: expect.stringContaining('StartRun') });
    expect(decoder(intentMessages)('FinishRun', { ending: { status: 'done' } })).toMatchObject({ ok: false, because: 'invalid', message: expect.stringContaining('ending.status') });
  });

  test('members that a later version adds are dropped on read', () => {
    expect(decoder(runMessages)('StepsReported', { later: 1 })).toEqual({ ok: true, message: { type: 'StepsReported', data: {} } });
  });
});
