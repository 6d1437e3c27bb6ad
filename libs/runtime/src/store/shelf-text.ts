import { z } from 'zod';
import type { LogRecord } from '../ports.js';

const Header = z.union([z.string(), z.array(z.string())]);
const Text = z.object({ topic: z.string(), lane: z.number().int(), offset: z.number().int(), key: z.string().nullable(), headers: z.record(z.string(), Header), value: z.string().nullable(), time: z.number() });

const text = (value: string | Uint8Array): string => (typeof value === 'string' ? value : Buffer.from(value).toString());

/** A message as text. Headers are texts to Holdfast, and are kept as such. */
export function toShelf(record: LogRecord): string {
  const headers = Object.entries(record.headers).flatMap(([name, value]) => (value === undefined ? [] : [[name, typeof value === 'string' || value instanceof Uint8Array ? text(value) : value.map(text)]]));
  return JSON.stringify({ ...record, headers: Object.fromEntries(headers) as unknown });
}

export const fromShelf = (record: string): LogRecord => Text.parse(JSON.parse(record));
