import { expect, it } from '@jest/globals';
import { caseName, parseCaseName } from '../src/cases.js';

it.each([
  ['run-1/1/1', { run: 'run-1', step: '1', attempt: 1 }],
  ['nested/run/3.1/2', { run: 'nested/run', step: '3.1', attempt: 2 }],
  // Of a compensation.
  ['run-1/3~1/1', { run: 'run-1', step: '3~1', attempt: 1 }],
  ['run-1/3.1~12/1', { run: 'run-1', step: '3.1~12', attempt: 1 }],
])('%s names a case', (name, wanted) => {
  const { run, step, attempt } = parseCaseName(name);
  expect({ run, step, attempt }).toEqual(wanted);
  expect(caseName(run, step, attempt)).toBe(name);
});

it.each(['run-1', 'run-1/1', 'run-1/0/1', 'run-1/1..2/1', 'run-1/3~0/1', 'run-1/1/one'])('%s names none', (name) => {
  expect(() => parseCaseName(name)).toThrow(/^".*" names no case: a case is RUN\/STEP\/ATTEMPT/);
});
