import { copyFile } from 'node:fs/promises';
import path from 'node:path';
import { rolldown } from 'rolldown';

/**
 * `node scripts/bundle.mjs FILE`: makes one file of a built program and all that it imports, in its place. A service reads some
 * thirteen hundred files before it does anything; as one file it is there, and after a crash back, in half of that time.
 * The program as it was stays beside it, as `unbundled.js`.
 */
const [file] = process.argv.slice(2);
if (file === undefined) {
  process.stderr.write('usage: node scripts/bundle.mjs FILE\n');
  process.exit(2);
}
const input = path.resolve(file);
await copyFile(input, path.join(path.dirname(input), 'unbundled.js'));

const bundle = await rolldown({
  input,
  platform: 'node',
  onLog(level, log) {
    // Drivers and transports that a package asks for where they are installed, and does without: it asks when it runs, as before.
    if (log.code === 'UNRESOLVED_IMPORT' && log.message.includes('node_modules/')) return;
    if (level === 'warn' && !log.message.includes('node_modules/')) throw new Error(log.message);
  },
});
try {
  await bundle.write({ dir: path.dirname(input), format: 'esm', entryFileNames: path.basename(input), chunkFileNames: `${path.basename(input, '.js')}/[name].js` });
} finally {
  await bundle.close();
}
