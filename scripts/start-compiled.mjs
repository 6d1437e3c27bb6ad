import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire, Module } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Script } from 'node:vm';

/*
 * Starts the program beside this file, `main.cjs`, from what V8 has compiled of it before (`main.cjs.compiled`), which
 * takes half the time. V8 refuses what another version of it has written, and compiles the program as usual.
 */
const file = fileURLToPath(new URL('main.cjs', import.meta.url));
const kept = `${file}.compiled`;

function compiled() {
  try {
    return readFileSync(kept);
  } catch {
    return undefined;
  }
}

const script = new Script(Module.wrap(readFileSync(file, 'utf8')), { filename: file, cachedData: compiled() });
// By the build alone.
if (process.argv[2] === '--keep-compiled') process.on('exit', () => writeFileSync(kept, script.createCachedData()));

const program = { exports: {} };
script.runInThisContext()(program.exports, createRequire(file), program, file, path.dirname(file));
