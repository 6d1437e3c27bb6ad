import type { Message } from '@holdfast/protocol';
import { kafkaRebuildLog, requireStopped } from '../kafka/rebuild-log.js';
import { PgRebuildStore } from '../rebuild/pg-rebuild-store.js';
import { rebuildJournal, type RebuildReport } from '../rebuild/rebuild.js';
import { systemClock, systemRandom } from '../system.js';
import { openService, type RunServiceOptions } from './open-service.js';

export interface RebuildServiceOptions {
  readonly skipMissing: boolean;
  readonly onProgress: (what: string) => void;
  readonly signal?: AbortSignal;
}

/** Whole journals are read in one statement. */
const LONG_STATEMENTS = { statementTimeoutMs: 0 };

/** Makes a service's journal from the topics; no instance of it may run. */
export async function rebuildService<State, Event extends Message>(options: RunServiceOptions, { skipMissing, onProgress, signal }: RebuildServiceOptions): Promise<RebuildReport> {
  const opened = await openService<State, Event, PgRebuildStore>(options, (database) => new PgRebuildStore(database), LONG_STATEMENTS);
  try {
    const { brokers, instance, groupId, service, store, settings } = opened;
    const kafka = { brokers, clientId: `${instance}-rebuild`, groupId };
    await requireStopped(kafka, options.name, settings.HOLDFAST_SESSION_TIMEOUT_MS);
    return await rebuildJournal<State, Event>({
      service,
      store,
      log: kafkaRebuildLog(kafka),
      clock: systemClock,
      random: systemRandom,
      lanes: settings.HOLDFAST_PARTITIONS,
      skipMissing,
      onProgress,
      signal,
    });
  } finally {
    await opened.close();
  }
}
