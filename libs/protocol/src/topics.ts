import type { Pool } from './ids.js';

/** Topic names. All have the same number of partitions and are keyed by run id, except `contracts`, `worker.events` and `audit.events` (by tenant). */
export const topics = {
  agentIntents: 'agent.intents',
  runEvents: 'run.events',
  toolResults: 'tool.results',
  effectEvents: 'effect.events',
  reconciliationEvents: 'reconciliation.events',
  compensationEvents: 'compensation.events',
  operatorCommands: 'operator.commands',
  workerEvents: 'worker.events',
  contracts: 'contracts',
  deadLetters: 'dead.letters',
  auditEvents: 'audit.events',
} as const;

export const runTasks = (pool: Pool): string => `run.tasks.${pool}`;
export const toolTasks = (pool: Pool): string => `tool.tasks.${pool}`;

const DAY_MS = 24 * 60 * 60 * 1000;

export interface TopicSpec {
  readonly name: string;
  readonly retentionMs: number | 'forever';
  readonly compacted?: true;
}

/** Topics that exist once, with how long each keeps its messages. */
export const fixedTopics: readonly TopicSpec[] = [
  { name: topics.agentIntents, retentionMs: 7 * DAY_MS },
  { name: topics.runEvents, retentionMs: 'forever' },
  { name: topics.toolResults, retentionMs: 7 * DAY_MS },
  { name: topics.effectEvents, retentionMs: 'forever' },
  { name: topics.reconciliationEvents, retentionMs: 'forever' },
  { name: topics.compensationEvents, retentionMs: 'forever' },
  { name: topics.operatorCommands, retentionMs: 30 * DAY_MS },
  { name: topics.workerEvents, retentionMs: DAY_MS },
  { name: topics.contracts, retentionMs: 'forever', compacted: true },
  { name: topics.deadLetters, retentionMs: 30 * DAY_MS },
  { name: topics.auditEvents, retentionMs: 'forever' },
];

/** Topics that a pool of workers has of its own. */
export const poolTopics = (pool: Pool): readonly TopicSpec[] => [
  { name: runTasks(pool), retentionMs: DAY_MS },
  { name: toolTasks(pool), retentionMs: DAY_MS },
];

/** Largest value of a message, in bytes. Anything larger is an artifact, passed by reference. */
export const VALUE_BYTES_MAX = 256 * 1024;
