import { describe, expect, it } from '@jest/globals';
import { FailureClass } from '@holdfast/protocol';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import path from 'node:path';
import { CASES } from './matrix/cases.js';
import { crashCells } from './matrix/cells.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const text = readFileSync(path.join(ROOT, 'docs/guarantees.md'), 'utf8');

/** Rows of the page's tables, by the heading that they stand under. */
function rowsUnder(): Map<string, string[][]> {
  const rows = new Map<string, string[][]>();
  let heading = '';
  for (const line of text.split('\n')) {
    const title = /^#+ (.*)/.exec(line)?.[1];
    if (title !== undefined) heading = title;
    // The head of a table names the columns, the line below it is dashes.
    else if (line.startsWith('| ') && !/^\| (---|claim|class|what goes wrong|item) /.test(line)) rows.set(heading, [...(rows.get(heading) ?? []), line.slice(1, -1).split(' | ').map((cell) => cell.trim())]);
  }
  return rows;
}

const rows = rowsUnder();
const all = [...rows.values()].flat();
const claims = all.map((row) => ({ claim: row[0] ?? '', shown: row.at(-1) ?? '', whole: row.join(' ') }));
const firstCells = (heading: string): string[] => (rows.get(heading) ?? []).map(([first]) => first ?? '');

const CHECKLIST = [
  'intent recorded', 'key stable', 'unknown handled', 'retries bounded', 'one retry owner', 'fence enforced', 'approval bound', 'cancel safe', 'compensation verified', 'waits end', 'versions compatible',
  'old messages readable', 'restore tested', 'record audited', 'poison parked', 'readiness honest', 'figures alarmed', 'tenants separated', 'secrets kept out', 'overload contained', 'deploys safe',
];

describe('the page of guarantees', () => {
  it('has a row for each invariant', () => {
    const named = claims.flatMap(({ claim }) => /^I\d+/.exec(claim) ?? []);
    expect(named).toEqual(Array.from({ length: 13 }, (_, i) => `I${i + 1}`));
  });

  it('has a row for each failure class', () => {
    expect(firstCells('Failure classes')).toEqual(FailureClass.options.map((name) => `\`${name}\``));
  });

  it('has a row for each item of a production checklist', () => {
    expect(firstCells('A production checklist')).toEqual(CHECKLIST);
  });

  it('names a test for each claim, or says that it isn’t there yet', () => {
    expect(all.length).toBeGreaterThan(60);
    expect(claims.filter(({ shown, whole }) => !/`[^`]+\.(spec|stack)\.ts`|`[^`]*\/test\/[^`]*\/`/.test(shown) && !whole.includes('not yet'))).toEqual([]);
  });

  it('names only tests that there are', () => {
    const files = [...new Set([...text.matchAll(/`([^`\s]+\/[^`\s]+)`/g)].map(([, file]) => file ?? ''))].filter((file) => /\.(spec|stack)\.ts$|\/$/.test(file));
    expect(files.length).toBeGreaterThan(30);
    expect(files.filter((file) => !existsSync(path.join(ROOT, file)))).toEqual([]);
  });

  it('names only cells that the crash matrix has', () => {
    const names = [...crashCells().cells, ...CASES].map(({ name }) => name);
    const patterns = [...text.matchAll(/crash matrix ((?:`[^`]+`(?:, )?)+)/g)].flatMap(([, list]) => [...(list ?? '').matchAll(/`([^`]+)`/g)].map(([, pattern]) => pattern ?? ''));
    expect(patterns.length).toBeGreaterThan(10);
    expect(patterns.filter((pattern) => !names.some((name) => new RegExp(pattern).test(name)))).toEqual([]);
  });
});
