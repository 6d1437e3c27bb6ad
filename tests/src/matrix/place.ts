import { execFileSync } from 'node:child_process';
import os from 'node:os';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));

/** @throws Error where git refuses, or there is no repository */
export const git = (...args: string[]): string => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();

export interface Commit {
  readonly hash: string;
  /** Files were changed since. */
  readonly changed: boolean;
}

/** The commit that is checked out; changes of `except` don't count. Null outside a repository. */
export function commitOf(except: string): Commit | null {
  try {
    return { hash: git('rev-parse', '--short', 'HEAD'), changed: git('status', '--porcelain', '--', '.', `:!${except}`) !== '' };
  } catch {
    return null;
  }
}

export const machine = (): string => `${os.cpus().length} × ${os.cpus()[0]?.model.trim() ?? '?'}, ${Math.round(os.totalmem() / 2 ** 30)} GiB, ${os.type()} ${os.release()}`;
