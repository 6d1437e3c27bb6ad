import { readdir, readFile } from 'node:fs/promises';

/** What a process, and where asked its children, used so far. */
export interface Usage {
  readonly cpuMs: number;
  readonly peakMiB: number;
}

/** Clock ticks a second on Linux, as /proc counts them. */
const TICKS = 100;

async function one(pid: number): Promise<Usage> {
  const [stat, status] = await Promise.all([readFile(`/proc/${pid}/stat`, 'utf8'), readFile(`/proc/${pid}/status`, 'utf8')]).catch(() => ['', '']);
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const ticks = Number(fields[11] ?? 0) + Number(fields[12] ?? 0);
  const peak = Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0);
  return { cpuMs: (ticks * 1000) / TICKS, peakMiB: peak / 1024 };
}

/** CPU and peak memory of a process; with `children`, of all that it started too (memory: the largest). */
export async function usageOf(pid: number | undefined, children = false): Promise<Usage> {
  if (pid === undefined) return { cpuMs: 0, peakMiB: 0 };
  const pids = children ? [pid, ...(await childrenOf(pid))] : [pid];
  const all = await Promise.all(pids.map(one));
  return { cpuMs: all.reduce((sum, { cpuMs }) => sum + cpuMs, 0), peakMiB: Math.max(...all.map(({ peakMiB }) => peakMiB)) };
}

async function childrenOf(parent: number): Promise<number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const stats = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/stat`, 'utf8').then((text) => ({ pid, ppid: Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[1]) }), () => null)));
  return stats.flatMap((stat) => (stat?.ppid === parent ? [stat.pid] : []));
}
