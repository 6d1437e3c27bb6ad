import { jest } from '@jest/globals';
import { runProgram } from '@holdfast/cli';

export interface Said {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** A command with what it says and its exit code, in this process: one start of node for each would be most of the time. */
export async function cli(...args: string[]): Promise<Said> {
  const out: string[] = [];
  const err: string[] = [];
  const spies = [
    jest.spyOn(process.stdout, 'write').mockImplementation((text) => out.push(String(text)) > 0),
    jest.spyOn(process.stderr, 'write').mockImplementation((text) => err.push(String(text)) > 0),
  ];
  process.exitCode = 0;
  try {
    const code = await runProgram(args);
    return { code, out: out.join(''), err: err.join('') };
  } finally {
    process.exitCode = 0;
    for (const spy of spies) spy.mockRestore();
  }
}
