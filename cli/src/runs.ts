import { isoTime, topics } from '@holdfast/protocol';
import { openWaits, phaseOf } from '@holdfast/orchestrator/domain';
import { readStreams } from './audit/read-events.js';
import { CliError } from './failure.js';
import { runOf } from './run-of.js';

type RunPhase = ReturnType<typeof phaseOf>;

/** A run in a list. Times are RFC 3339. */
export interface RunRow {
  readonly run: string;
  readonly tenant: string;
  readonly phase: string;
  readonly agent: string | null;
  readonly steps: number;
  readonly waits: readonly string[];
  /** What it hangs on, when it is stuck. */
  readonly stuck: string | null;
  readonly started: string;
  readonly changed: string;
}

export interface RunFilter {
  readonly phase?: string | undefined;
  readonly agent?: string | undefined;
  readonly tenant?: string | undefined;
  /** Approvals that wait for one of these roles. */
  readonly approver?: string | undefined;
}

const PHASES: Readonly<Record<RunPhase, true>> = {
  ...{ queued: true, running: true, waiting: true, blocked: true, paused: true, stuck: true, cancelling: true, quarantined: true },
  ...{ completed: true, completed_partially: true, failed: true, cancelled: true, expired: true },
  ...{ compensating: true, compensated: true, compensated_partially: true, compensation_failed: true },
};

/** @throws CliError there is no such phase: a list without it would say that there are no runs */
export function phaseNamed(text: string | undefined): RunPhase | undefined {
  if (text === undefined || Object.hasOwn(PHASES, text)) return text as RunPhase | undefined;
  throw new CliError(`there is no phase "${text}"; there are ${Object.keys(PHASES).join(', ')}`);
}

/** All runs, newest first, from `run.events` alone. */
export async function listRuns(brokers: readonly string[], filter: RunFilter = {}): Promise<RunRow[]> {
  const rows: RunRow[] = [];
  for (const { stream, events } of (await readStreams(brokers, topics.runEvents)).values()) {
    const run = runOf({ events });
    const [first] = events;
    const last = events.at(-1);
    if (run.status === 'absent' || run.status === 'lane' || run.status === 'brakes' || first === undefined || last === undefined) continue;
    const waits = openWaits(run);
    if (filter.approver !== undefined && !waits.some(({ wait }) => wait.kind === 'approval' && wait.approvers.includes(filter.approver ?? ''))) continue;
    rows.push({
      run: stream,
      tenant: run.tenant,
      phase: phaseOf(run),
      agent: run.agent === null ? null : `${run.agent.name}@${run.agent.version}`,
      steps: run.steps.size,
      waits: waits.map(({ step, wait }) => `${step}: ${wait.kind === 'signal' ? `signal ${wait.name}` : wait.kind === 'approval' ? `approval "${wait.what}"` : wait.kind}`),
      stuck: run.stuck?.on ?? null,
      started: isoTime(first.envelope.time),
      changed: isoTime(last.envelope.time),
    });
  }
  return rows
    .filter(({ phase, agent, tenant }) => (filter.phase === undefined || phase === filter.phase) && (filter.agent === undefined || agent?.split('@')[0] === filter.agent) && (filter.tenant === undefined || tenant === filter.tenant))
    .sort((a, b) => b.started.localeCompare(a.started) || a.run.localeCompare(b.run));
}
