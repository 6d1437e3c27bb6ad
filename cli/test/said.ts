import { jest } from '@jest/globals';
import { runProgram } from '../src/index.js';

/** Runs a command line in this process and takes what it says. */
export async function said(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const taken = { out: '', err: '' };
  const out = jest.spyOn(process.stdout, 'write').mockImplementation((text) => Boolean((taken.out += String(text))));
  const err = jest.spyOn(process.stderr, 'write').mockImplementation((text) => Boolean((taken.err += String(text))));
  // jest keeps what is printed that way from stdout.
  const log = jest.spyOn(console, 'log').mockImplementation((text) => void (taken.out += `${String(text)}\n`));
  process.exitCode = 0;
  try {
    return { code: await runProgram(args), ...taken };
  } finally {
    process.exitCode = 0;
    out.mockRestore();
    err.mockRestore();
    log.mockRestore();
  }
}
