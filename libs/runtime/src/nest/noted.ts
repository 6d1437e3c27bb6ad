import type { Logger } from 'pino';
import type { LoopObserver } from '../loop/observer.js';
import type { JournalRow } from '../store/types.js';

/** Events that somebody who reads a log wants to come across. All else is on the topics. */
const NOTED: ReadonlySet<string> = new Set(['RunQuarantined', 'RunStuck', 'EffectOutcomeUnknown', 'VerdictContradicted', 'DuplicateEffectDetected', 'CaseEscalated', 'CompensationEscalated']);

/** Writes one line for each event that a person may have to look at, with its run and step. */
export const noting = (log: Pick<Logger, 'warn'>): LoopObserver => ({
  onTurn: ({ lanes }) => {
    for (const { rows } of lanes) for (const row of rows) if (NOTED.has(row.type)) log.warn({ run: row.stream, ...stepOf(row), event: row.type, tenant: row.tenant }, 'something of a run may want a person');
  },
});

function stepOf({ data }: JournalRow): { step?: string; attempt?: number } {
  const { step, attempt } = JSON.parse(data) as { step?: unknown; attempt?: unknown };
  return { ...(typeof step === 'string' ? { step } : {}), ...(typeof attempt === 'number' ? { attempt } : {}) };
}
