import { readFile } from 'node:fs/promises';

/** `node scripts/count-tests.mjs RESULTS JEST_EXIT FAILED_CHECKS`: the closing line of .ci/run, and its exit code. */
const [file = '', exit = '1', checks = '0'] = process.argv.slice(2);
const results = await readFile(file, 'utf8').then(JSON.parse).catch(() => ({}));
const passed = results.numPassedTests ?? 0;
// A file that could not even be loaded has run no test, and yet failed.
let failed = (results.numFailedTests ?? 0) + (results.numRuntimeErrorTestSuites ?? 0) + Number(checks);
// Jest may fail with no failed test to show (a set-up that broke), and a run of no tests proves nothing.
if (failed === 0 && (exit !== '0' || passed === 0)) failed = 1;
process.stdout.write(`${passed} passed, ${failed} failed\n`);
process.exitCode = failed > 0 ? 1 : 0;
