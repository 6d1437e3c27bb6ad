import { spawnSync } from 'node:child_process';
import { copyFile, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

/**
 * `node scripts/bundle.mjs DIST`: makes one file of a built program and all that it imports, `main.cjs`, and keeps what V8
 * compiles of it. A service reads some thirteen hundred files before it does anything; as one file it is there, and after a
 * crash back, in half of that time, and compiled before, in half of that again. `main.js` starts it; what that was
 * stays beside it, as `unbundled.js`. What it imports when it runs is required: code that was compiled before can't import.
 */
const [dist] = process.argv.slice(2);
if (dist === undefined) {
  process.stderr.write('usage: node scripts/bundle.mjs DIST\n');
  process.exit(2);
}
const at = (name) => path.resolve(dist, name);
await copyFile(at('main.js'), at('unbundled.js'));

const bundle = await rolldown({
  input: at('unbundled.js'),
  platform: 'node',
  onLog(level, log) {
    // Drivers and transports that a package asks for where they are installed, and does without: it asks when it runs, as before.
    if (log.code === 'UNRESOLVED_IMPORT' && log.message.includes('node_modules/')) return;
    if (level === 'warn' && !log.message.includes('node_modules/')) throw new Error(log.message);
  },
});
try {
  await bundle.write({ dir: at('.'), format: 'cjs', entryFileNames: 'main.cjs', codeSplitting: false, dynamicImportInCjs: false });
} finally {
  await bundle.close();
}

await copyFile(fileURLToPath(new URL('start-compiled.mjs', import.meta.url)), at('main.js'));
await rm(at('main.cjs.compiled'), { force: true });
// Started without any settings it loads all that it needs, and ends for want of them: that is what it compiles at each start.
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('HOLDFAST_')));
const { stderr } = spawnSync(process.execPath, [at('main.js'), '--keep-compiled'], { env, encoding: 'utf8', timeout: 60_000 });
await stat(at('main.cjs.compiled')).catch(() => {
  throw new Error(`${dist}/main.js could not be run to be compiled: ${stderr}`);
});
