import type { Command } from 'commander';
import { openArtifactStore } from '@holdfast/runtime/artifacts';
import ms, { type StringValue } from 'ms';
import { CliError } from '../failure.js';
import { print, progress } from '../print.js';
import { findArtifacts } from '../stack-file.js';

export function addArtifacts(program: Command): void {
  const artifacts = program.command('artifacts').description('large values that messages refer to');
  artifacts
    .command('sweep')
    .description('remove what was stored longer ago than runs, cases and audits need it; run it now and then')
    .requiredOption('--older-than <duration>', 'such as "90 days": what was stored or referred to anew since stays')
    .option('--at <place>', 'the store: a folder, or s3://bucket/prefix (default: HOLDFAST_ARTIFACTS, or that of the stack in this folder)')
    .option('--json', 'print JSON')
    .action(async ({ olderThan, at, json }: { olderThan: string; at?: string; json?: boolean }) => {
      const olderThanMs = durationOf(olderThan);
      const place = at ?? (await findArtifacts('.'));
      const store = await openArtifactStore(place);
      progress(`sweeping ${place} ...`);
      const swept = await store.sweep({ olderThanMs });
      print(json === true, { place, olderThanMs, ...swept }, () => `${place}: ${swept.removed} artifacts removed (${swept.bytes} bytes), stored more than ${ms(olderThanMs, { long: true })} ago`);
    });
}

/** Milliseconds. A number alone is refused: whoever forgot the unit would lose everything. */
function durationOf(text: string): number {
  const found = /[a-z]/i.test(text) ? lengthOf(text as StringValue) : Number.NaN;
  if (Number.isFinite(found) && found > 0) return found;
  throw new CliError(`--older-than ${JSON.stringify(text)} is no length of time: say it with its unit, such as "90 days" or "12h"`);
}

/** The library throws for a text that is empty or very long, and gives NaN or undefined for one that says nothing. */
function lengthOf(text: StringValue): number {
  try {
    return ms(text) ?? Number.NaN;
  } catch {
    return Number.NaN;
  }
}
