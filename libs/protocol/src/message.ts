import { type z } from 'zod';
import type { Json } from './json.js';

/** One message type: its name on the wire (`ce_type`) and the schema of its data. */
export interface MessageType<Type extends string = string, Data = unknown> {
  readonly type: Type;
  readonly schema: z.ZodType<Data>;
}

/** A message as deciders see it: its type and its data. */
export interface Message<Type extends string = string, Data = unknown> {
  readonly type: Type;
  readonly data: Data;
}

export type MessageOf<M> = M extends MessageType<infer Type, infer Data> ? Message<Type, Data> : never;

/** Declares a message type once; its TypeScript type is inferred. Unknown members are dropped on read. */
export function message<const Type extends string, Schema extends z.ZodType>(type: Type, schema: Schema): MessageType<Type, z.infer<Schema>> & {
  (data: z.infer<Schema>): Message<Type, z.infer<Schema>>;
} {
  const make = (data: z.infer<Schema>): Message<Type, z.infer<Schema>> => ({ type, data });
  return Object.assign(make, { type, schema: schema as z.ZodType<z.infer<Schema>> });
}

export type Decoded<M extends MessageType> =
  | { readonly ok: true; readonly message: MessageOf<M> }
  | { readonly ok: false; readonly because: 'unknown_type' | 'invalid'; readonly message: string };

/** A reader for the message types of one topic. */
export function decoder<M extends MessageType>(types: readonly M[]): (type: string, data: Json) => Decoded<M> {
  const byType = new Map<string, M>(types.map((type) => [type.type, type]));
  return (type, data) => {
    const known = byType.get(type);
    if (known === undefined) return { ok: false, because: 'unknown_type', message: `no message type "${type}" here; known: ${[...byType.keys()].join(', ')}` };
    const parsed = known.schema.safeParse(data);
    if (!parsed.success) return { ok: false, because: 'invalid', message: `${type}: ${describeIssues(parsed.error)}` };
    return { ok: true, message: { type: known.type, data: parsed.data } as MessageOf<M> };
  };
}

/** One line that names each field and what is wrong with it. */
export function describeIssues(error: z.ZodError): string {
  return error.issues
    .slice(0, 5)
    .map((issue) => `${issue.path.length === 0 ? 'value' : issue.path.join('.')}: ${issue.message}`)
    .join('; ');
}
