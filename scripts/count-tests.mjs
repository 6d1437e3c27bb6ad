import { readFile } from 'node:fs/promises';
import path from 'node:path';

/**
 * `node scripts/count-tests.mjs FOLDER RUN...`: the closing line of .ci/run, and its exit code. In the folder lie `RUN.json` and
 * `RUN.exit` of each run of jest, and `failed`, with a line for each other check that did.
 */
const [folder = '', ...runs] = process.argv.slice(2);
const read = (name) => readFile(path.join(folder, name), 'utf8').catch(() => '');
let passed = 0;
let failed = (await read('failed')).split('\n').filter((line) => line !== '').length;
for (const run of runs) {
  const results = await read(`${run}.json`).then(JSON.parse).catch(() => ({}));
  const passedHere = results.numPassedTests ?? 0;
  // A file that could not even be loaded has run no test, and yet failed.
  const failedHere = (results.numFailedTests ?? 0) + (results.numRuntimeErrorTestSuites ?? 0);
  passed += passedHere;
  // Jest may fail with no failed test to show (a set-up that broke), and a run of no tests proves nothing.
  const sound = passedHere > 0 && (await read(`${run}.exit`)).trim() === '0';
  failed += failedHere > 0 || sound ? failedHere : 1;
}
process.stdout.write(`${passed} passed, ${failed} failed\n`);
process.exitCode = failed > 0 ? 1 : 0;
