import { z } from 'zod';

/** As much of a message as tells what it is about. */
const Told = z.object({
  step: z.string().optional(),
  kind: z.string().optional(),
  name: z.string().optional(),
  wait: z.object({ kind: z.string(), name: z.string().optional() }).optional(),
  ending: z.object({ status: z.string() }).optional(),
});

/** A call of a tool's code is told of as its name alone. */
const Message = z
  .string()
  .transform((text, context): unknown => {
    try {
      return JSON.parse(text);
    } catch {
      context.addIssue({ code: 'custom', message: 'no JSON' });
      return z.NEVER;
    }
  })
  .pipe(Told);

/** What messages are about, in words: the tools that they name, or whose keys, and other steps. Null: no step. */
export function aboutOf(texts: readonly string[], tools: readonly string[]): string | null {
  const told = texts.flatMap((text) => {
    const parsed = Message.safeParse(text);
    return parsed.success ? [parsed.data] : [];
  });
  const named = new Set([...tools, ...told.flatMap(nameOf)]);
  if (named.size === 0) for (const { step } of told) if (step !== undefined) named.add(`step ${step}`);
  return named.size === 0 ? null : [...named].join(', ');
}

function nameOf({ kind, name, wait, ending }: z.infer<typeof Told>): string[] {
  if (ending !== undefined) return ['the end'];
  if (wait !== undefined) return [wait.name === undefined ? wait.kind : `${wait.kind} ${wait.name}`];
  return kind !== undefined && name !== undefined ? [`${kind} ${name}`] : [];
}
