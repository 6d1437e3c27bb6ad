import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from '@jest/globals';
import { decoder, runMessages, type Json } from '@holdfast/protocol';
import { absent, evolve, phaseOf, type Run, type RunEvent } from '../src/domain/run.js';
import { dueAt } from '../src/domain/waiting.js';
import { accepted, asked, known } from './kit.js';

/* Every event as it was ever written is in the protocol's golden files: whatever its age, it folds, alone and after others. */
const folder = new URL('../../../libs/protocol/test/golden/', import.meta.url);
const types: ReadonlySet<string> = new Set(runMessages.map(({ type }) => type));
const decode = decoder(runMessages);
const files = readdirSync(folder).filter((file) => types.has(file.split('.')[0] ?? ''));
const eventIn = (file: string): RunEvent => {
  const decoded = decode(file.split('.')[0] ?? '', JSON.parse(readFileSync(new URL(file, folder), 'utf8')) as Json);
  if (!decoded.ok) throw new Error(decoded.message);
  return decoded.message;
};
const isOfARun = (run: Run): boolean => run.status !== 'absent' && run.status !== 'lane' && run.status !== 'brakes';

describe.each(files)('%s', (file) => {
  it('folds onto nothing and onto a run, and the run can be looked at then', () => {
    const event = eventIn(file);
    expect(() => evolve(absent, event)).not.toThrow();
    const run = [accepted(), asked('1', 'refund'), event].reduce<Run>((state, each) => evolve(state, each), absent);
    if (!isOfARun(run)) return expect(file).toMatch(/^(LaneTaken|Brake)/);
    expect([typeof phaseOf(known(run)), dueAt(known(run)) === undefined]).toEqual(['string', false]);
  });
});

it('all of them, one after the other, fold in any place', () => {
  const all = files.map(eventIn).filter(({ type }) => !/^(LaneTaken|Brake)/.test(type));
  const forth = all.reduce<Run>((run, event) => evolve(run, event), absent);
  const back = all.toReversed().reduce<Run>((run, event) => evolve(run, event), absent);
  expect([isOfARun(forth), isOfARun(back)]).toEqual([true, true]);
});
