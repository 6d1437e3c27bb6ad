import { execFile } from 'node:child_process';
import { readFile, readdir } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The command line of a process, with spaces between its words; undefined when there is no such process. */
export async function commandLine(pid: number): Promise<string | undefined> {
  if (process.platform === 'linux') {
    const words = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    // A zombie has an empty command line: it no longer runs.
    return words === '' ? undefined : words.replaceAll('\0', ' ').trim();
  }
  const listed = await run('ps', ['-ww', '-o', 'command=', '-p', String(pid)]).catch(() => ({ stdout: '' }));
  const line = listed.stdout.trim();
  return line === '' ? undefined : line;
}

/** When a process was started, in a form that only compares: pids are given out again, the pair is not. */
export async function startMark(pid: number): Promise<string | undefined> {
  if (process.platform === 'linux') {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
    // The second field is the program's name in brackets and may hold spaces; the start time is the 20th after it.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
  }
  const listed = await run('ps', ['-o', 'lstart=', '-p', String(pid)]).catch(() => ({ stdout: '' }));
  const mark = listed.stdout.trim();
  return mark === '' ? undefined : mark;
}

/** Zombies count as gone: they hold no port, no file and no lock. */
export const isRunning = async (pid: number): Promise<boolean> => (await commandLine(pid)) !== undefined;

export async function childrenOf(pid: number): Promise<number[]> {
  if (process.platform === 'linux') {
    const pids = (await readdir('/proc')).map(Number).filter((entry) => Number.isInteger(entry));
    const parents = await Promise.all(pids.map(parentOf));
    return pids.filter((_, index) => parents[index] === pid);
  }
  const listed = await run('ps', ['-A', '-o', 'pid=,ppid=']).catch(() => ({ stdout: '' }));
  return listed.stdout
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number))
    .flatMap(([child, parent]) => (parent === pid && child !== undefined ? [child] : []));
}

async function parentOf(pid: number): Promise<number | undefined> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return stat === '' ? undefined : Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
}
