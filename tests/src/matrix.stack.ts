import { expect, jest, test } from '@jest/globals';
import { writeFile } from 'node:fs/promises';
import { CASES } from './matrix/cases.js';
import { crashCells, DELIVERIES, EFFECTS, VICTIMS } from './matrix/cells.js';
import { runMatrix } from './matrix/run-matrix.js';
import { proof } from './support/proof.js';

const SHORT = [
  'ledger.after-commit EffectDispatched irreversible doubled',
  'orchestrator.before-publish EffectSettled idempotent reordered',
  'reconciliation.after-commit ProbeSent irreversible once',
  'host.after-call call irreversible doubled',
  'local.after-call call idempotent once',
  'compensation.after-commit CompensationOrdered irreversible doubled',
  'host.after-call answer irreversible reordered',
  'orchestrator.after-commit ApprovalDecided irreversible doubled',
  'orchestrator.before-publish RunCancelRequested irreversible reordered',
  'gateway.before-publish StartRun irreversible doubled',
];
const MINUTES = 60_000;

const LIMIT_MS = proof(10 * MINUTES, 75 * MINUTES);
/** Before jest gives up: what the matrix has started must end with it. */
const END_MS = MINUTES;

jest.setTimeout(LIMIT_MS);

const exactly = (names: readonly string[]): RegExp => new RegExp(`^(${names.map((name) => name.replaceAll('.', '\\.')).join('|')})$`);

test('the matrix has a cell for every process, boundary, effect class and delivery, or says why there is none', () => {
  const { cells, none } = crashCells();
  for (const boundary of new Set(cells.map((cell) => cell.boundary))) {
    for (const effect of EFFECTS) {
      const deliveries = cells.filter((cell) => cell.boundary === boundary && cell.effect === effect).map(({ delivery }) => delivery);
      const reason = none.find(({ name }) => name === `${boundary} ${effect}`);
      expect({ boundary, effect, deliveries, reason: reason?.because }).toEqual({ boundary, effect, deliveries: reason === undefined ? [...DELIVERIES] : [], reason: reason === undefined ? undefined : expect.any(String) });
    }
  }
  expect(new Set(cells.map(({ victim }) => victim))).toEqual(new Set(VICTIMS));
  const names = [...cells, ...CASES].map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
});

test('a process killed at a boundary costs nothing that the world can see', async () => {
  const result = await runMatrix({ filter: proof<RegExp | undefined>(exactly(SHORT), undefined), short: proof(true, false), say: () => undefined, signal: AbortSignal.timeout(LIMIT_MS - END_MS) });
  // For `npm run report -- --matrix FILE`: half an hour is not spent twice.
  const out = process.env['HOLDFAST_MATRIX_OUT'];
  if (out !== undefined) await writeFile(out, JSON.stringify(result, null, 2));
  expect(result.rows.filter(({ verdict }) => verdict === 'failed')).toEqual([]);
  expect(result.whole).toBe(true);
  // The last row is the audit.
  expect(result.rows.length).toBe(1 + proof(SHORT.length, crashCells().cells.length + CASES.length));
});
