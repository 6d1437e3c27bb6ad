import { fold } from '@holdfast/kernel';
import { topics } from '@holdfast/protocol';
import { absent, evolve, historyOf, type RunEvent } from '@holdfast/orchestrator/domain';
import type { RunHistory } from '@holdfast/sdk';
import { readStreams } from './audit/read-events.js';
import { CliError, noSuchRun } from './failure.js';

/**
 * A run's history for replays, folded from its topic alone.
 * @throws CliError nobody could replay it
 */
export async function exportRun(brokers: readonly string[], id: string): Promise<RunHistory> {
  const stream = (await readStreams(brokers, topics.runEvents, id)).get(id);
  if (stream === undefined) throw noSuchRun(id);
  const [problem] = stream.problems;
  if (problem !== undefined) throw new CliError(`the history of run ${id} is damaged, and would mislead a replay: ${problem}`);
  return historyFile(id, stream.events.map(({ envelope, data }) => ({ type: envelope.type, data }) as unknown as RunEvent));
}

export function historyFile(id: string, events: readonly RunEvent[]): RunHistory {
  const run = fold(evolve, absent, [...events]);
  if (run.status === 'absent' || run.status === 'lane' || run.status === 'brakes') throw new CliError(`${id} is no run`);
  if (run.agent === null) throw new CliError(`run ${id} has no agent: its harness owns its loop, so there is no code here to replay it against`);
  const steps = historyOf(run);
  const recorded = new Set<string>(run.steps.keys());
  const refused = events.flatMap((event) => {
    if (event.type !== 'IntentRejected') return [];
    const { intent, step, reason, message } = event.data;
    return step === undefined || recorded.has(step) ? [] : [{ intent, step, reason, message }];
  });
  const end = events.findLast((event) => event.type === 'RunFinished');
  return {
    format: 'holdfast/run-history',
    version: 1,
    run: id as RunHistory['run'],
    tenant: run.tenant,
    agent: run.agent,
    input: run.input,
    steps,
    observed: [...run.observed],
    refused,
    ending: run.status === 'ended' ? run.ending : null,
    // Only whoever runs the code has a fence to end its run with.
    ...(end === undefined ? {} : { endedBy: end.data.fence === undefined ? 'service' : 'code' }),
  };
}
