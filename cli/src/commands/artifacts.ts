import type { Command } from 'commander';
import { openArtifactStore } from '@holdfast/runtime/artifacts';
import ms from 'ms';
import { durationMs } from '../duration.js';
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
      const olderThanMs = durationMs(olderThan, '--older-than', 1);
      const place = at ?? (await findArtifacts('.'));
      const store = await openArtifactStore(place);
      progress(`sweeping ${place} ...`);
      const swept = await store.sweep({ olderThanMs });
      print(json === true, { place, olderThanMs, ...swept }, () => `${place}: ${swept.removed} artifacts removed (${swept.bytes} bytes), stored more than ${ms(olderThanMs, { long: true })} ago`);
    });
}
