import type { Command } from 'commander';
import { CliError } from './failure.js';

export interface PageOptions {
  readonly limit: string;
  readonly after?: string;
}

/** Every listing comes in pages. */
export const withPages = (made: Command, limit: number, what: string): Command => made.option('--limit <n>', 'at most so many', String(limit)).option(`--after <${what}>`, 'those after this one in the list');

export interface Page<Row> {
  readonly page: readonly Row[];
  /** Name of the last one, where there are more. */
  readonly next: string | null;
}

/**
 * One page of a list. An `after` that isn't in it (any more) begins from the top.
 * @throws CliError when the limit is no whole number from 1 on
 */
export function pageOf<Row>(all: readonly Row[], nameOf: (row: Row) => string, { limit, after }: PageOptions): Page<Row> {
  const max = Number(limit);
  if (!Number.isInteger(max) || max < 1) throw new CliError(`--limit ${limit}: a whole number from 1 on is needed`);
  const from = after === undefined ? 0 : all.findIndex((row) => nameOf(row) === after) + 1;
  const page = all.slice(from, from + max);
  const last = page.at(-1);
  return { page, next: last !== undefined && from + max < all.length ? nameOf(last) : null };
}

/** How a person gets the next page; empty where there is none. */
export const moreAfter = (next: string | null): string[] => (next === null ? [] : [`more: --after ${next}`]);
