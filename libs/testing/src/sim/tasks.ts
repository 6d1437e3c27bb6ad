import { DEFAULT_POOL, toolTasks, type Pool } from '@holdfast/protocol';
import type { Cluster } from './cluster.js';

export interface Untaken {
  readonly run: string;
  readonly step: string;
  readonly attempt: number;
}

/** Irreversible attempts of which no host has taken the task. */
export function untaken(cluster: Pick<Cluster, 'log' | 'coordinator'>): Untaken[] {
  const { committed } = cluster.coordinator(`holdfast.workers.${DEFAULT_POOL}`);
  const topic = toolTasks(DEFAULT_POOL as Pool);
  const seen = new Set<string>();
  const left: Untaken[] = [];
  for (const { value, lane, offset, key } of cluster.log.topic(topic)) {
    const task = JSON.parse(value ?? '') as { effect?: string; key: string; attempt: number; step: string };
    const attempt = `${task.key}/${task.attempt}`;
    if (task.effect !== 'irreversible' || seen.has(attempt)) continue;
    seen.add(attempt);
    if ((committed.get(`${topic}/${lane}`)?.offset ?? 0) <= offset) left.push({ run: key ?? '', step: task.step, attempt: task.attempt });
  }
  return left;
}
