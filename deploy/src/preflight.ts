import { execFile } from 'node:child_process';
import { access, constants, mkdir, statfs } from 'node:fs/promises';
import { createServer } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';
import { javaMissing, javaTooOld, noSpace, notWritable, portInUse, portRefused } from './errors.js';

const run = promisify(execFile);

export const MINIMUM_JAVA = 17;
const MIB = 1024 * 1024;
/** Kafka's segments, PostgreSQL's first WAL and catalogs, and room to work in. */
export const MINIMUM_FREE_BYTES = 512 * MIB;

/** `17.0.15` → 17, `1.8.0_402` → 8: Java dropped the leading 1 with version 9. */
export function javaMajor(versionOutput: string): number | undefined {
  const found = /version "(?:1\.)?(\d+)/.exec(versionOutput);
  return found?.[1] === undefined ? undefined : Number(found[1]);
}

export function javaCommand(env: NodeJS.ProcessEnv = process.env): string {
  const home = env['JAVA_HOME'];
  return home === undefined || home === '' ? 'java' : path.join(home, 'bin', 'java');
}

/** The command to run Java with, once it is known to be new enough. */
export async function requireJava(env: NodeJS.ProcessEnv = process.env): Promise<string> {
  const command = javaCommand(env);
  let output: string;
  try {
    // Java writes its version to stderr.
    output = (await run(command, ['-version'], { env })).stderr;
  } catch {
    throw javaMissing();
  }
  const major = javaMajor(output);
  if (major === undefined) throw javaMissing();
  if (major < MINIMUM_JAVA) throw javaTooOld(`Java ${major}`);
  return command;
}

/** Binding is the only test of a port that can't be wrong about who holds it. */
export async function requireFreePort(what: string, port: number, setting: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const probe = createServer();
    probe.once('error', (error: NodeJS.ErrnoException) =>
      reject(error.code === 'EADDRINUSE' ? portInUse(what, port, setting) : portRefused(what, port, setting, error)),
    );
    probe.listen({ port, host: '127.0.0.1', exclusive: true }, () => probe.close(() => resolve()));
  });
}

export async function requireDataDir(dir: string, minimumFreeBytes = MINIMUM_FREE_BYTES): Promise<void> {
  try {
    await mkdir(dir, { recursive: true });
    await access(dir, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw notWritable(dir, cause);
  }
  const disk = await statfs(dir);
  const free = disk.bavail * disk.bsize;
  if (free < minimumFreeBytes) throw noSpace(dir, Math.floor(free / MIB), Math.ceil(minimumFreeBytes / MIB));
}
