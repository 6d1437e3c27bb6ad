import { readFile } from 'node:fs/promises';
import type { Json } from '@holdfast/protocol';
import { z } from 'zod';

const Action = z.object({ tool: z.string().min(1), args: z.custom<Json>((value) => value !== undefined) });
const TaskFile = z.array(z.object({ task: z.string().min(1), actions: z.array(Action) }));

export type Action = z.infer<typeof Action>;
export interface Task {
  readonly task: string;
  readonly actions: readonly Action[];
}

/** Reads tasks; the error names the file and what is wrong with it. */
export async function readTasks(file: string): Promise<Task[]> {
  const text = await readFile(file, 'utf8').catch(() => {
    throw new Error(`--tasks ${file}: the file can't be read`);
  });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`--tasks ${file}: not JSON (${(error as Error).message})`);
  }
  const parsed = TaskFile.safeParse(value);
  if (!parsed.success) throw new Error(`--tasks ${file}: ${parsed.error.issues.slice(0, 3).map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; ')}`);
  const names = new Set<string>();
  for (const { task } of parsed.data) {
    if (names.has(task)) throw new Error(`--tasks ${file}: two tasks are named ${task}`);
    names.add(task);
  }
  return parsed.data;
}

/** Tools that read; all others change the world and may fire once. */
export const isPure = (tool: string): boolean => /^(get_|search_|list_|find_|calculate|think)/.test(tool);

/** A tool's name as Holdfast takes it. */
export const toolName = (tool: string): string => tool.replace(/[^A-Za-z0-9_.:-]/g, '_').replace(/^[^A-Za-z]/, 'x$&').slice(0, 100);
