import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire, Module } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Script } from 'node:vm';

/*
 * Starts the program beside this file, `main.cjs`, from what V8 has compiled of it before (`main.cjs.compiled`), which
 * takes half the time. V8 refuses what another version of it has written, but looks no closer: what is damaged, or of
 * another program, is told by the SHA-256 in front of it. Whatever is refused is compiled as usual.
 */
const file = fileURLToPath(new URL('main.cjs', import.meta.url));
const kept = `${file}.compiled`;
const source = readFileSync(file);
const DIGEST_BYTES = 32;
const digestOf = (code) => createHash('sha256').update(source).update(code).digest();

function compiled() {
  try {
    const bytes = readFileSync(kept);
    const code = bytes.subarray(DIGEST_BYTES);
    return digestOf(code).equals(bytes.subarray(0, DIGEST_BYTES)) ? code : undefined;
  } catch {
    return undefined;
  }
}

const script = new Script(Module.wrap(source.toString()), { filename: file, cachedData: compiled() });
// By the build alone.
if (process.argv[2] === '--keep-compiled') {
  process.on('exit', () => {
    const code = script.createCachedData();
    writeFileSync(kept, Buffer.concat([digestOf(code), code]));
  });
}

const program = { exports: {} };
script.runInThisContext()(program.exports, createRequire(file), program, file, path.dirname(file));
