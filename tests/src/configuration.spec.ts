import { expect, test } from '@jest/globals';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const reference = readFileSync(path.join(ROOT, 'docs/reference/configuration.md'), 'utf8');

const sources = ['services', 'libs', 'cli', 'deploy'].flatMap((folder) =>
  readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => /(^|\/)src\/.*\.ts$/.test(file) && !file.includes('node_modules/') && !(folder === 'libs' && file.startsWith('testing/')))
    .map((file) => readFileSync(path.join(ROOT, folder, file), 'utf8')),
);

test('every variable that the product reads is in the reference of its configuration, and no other', () => {
  const read = new Set(sources.flatMap((text) => text.match(/\bHOLDFAST_[A-Z_]*[A-Z]\b/g) ?? []));
  const told = new Set(reference.match(/\bHOLDFAST_[A-Z_]*[A-Z]\b/g));
  expect([...read].filter((name) => !told.has(name))).toEqual([]);
  expect([...told].filter((name) => !read.has(name))).toEqual([]);
  expect(read.size).toBeGreaterThan(30);
});

test('every setting says what it means', () => {
  expect(reference.split('\n').filter((line) => /^\| `HOLDFAST/.test(line) && / \|\s*\|$/.test(line))).toEqual([]);
});
