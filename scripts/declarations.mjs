import { spawnSync } from 'node:child_process';
import { cp, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * `node scripts/declarations.mjs`: writes the types of the libraries that users import, and of those that their types
 * reach, to `types` in each. One program for all of them: each by itself would read most of the others again.
 * Nothing is checked here: that is `npm run typecheck`'s, and would take most of the time.
 */
const ROOT = fileURLToPath(new URL('..', import.meta.url));
const COMPILER = path.join(ROOT, 'node_modules/typescript-native/bin/tsc');

const made = await mkdtemp(path.join(tmpdir(), 'hf-declarations-'));
try {
  const { status } = spawnSync(process.execPath, [COMPILER, '-p', path.join(ROOT, 'tsconfig.declarations.json'), '--noCheck', '--singleThreaded', '--outDir', made], { stdio: 'inherit' });
  if (status !== 0) throw new Error(`declarations: the compiler ended with ${status}`);
  for (const library of await readdir(path.join(made, 'libs'))) {
    const types = path.join(ROOT, 'libs', library, 'types');
    await rm(types, { recursive: true, force: true });
    await cp(path.join(made, 'libs', library, 'src'), types, { recursive: true });
  }
} finally {
  await rm(made, { recursive: true, force: true });
}
