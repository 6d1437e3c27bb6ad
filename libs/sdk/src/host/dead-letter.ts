import { DEFAULT_TENANT, DeadLetter, topics } from '@holdfast/protocol';
import type { LogRecord } from '@holdfast/runtime';
import { clipped, messageOf } from '../errors.js';
import type { WorkerLog } from './log.js';
import type { Outbox } from './outbox.js';

/** Sets an outsider's message aside, where an operator finds it. The lane goes on. */
export function deadLetter(outbox: Outbox, log: WorkerLog, record: LogRecord, type: string | null, message: string): void {
  const { topic, lane, offset, key, value } = record;
  log.warn('a message was set aside in the dead letters', { topic, lane, offset, because: message });
  const letter = DeadLetter({
    topic,
    partition: lane,
    offset,
    key: key === null ? null : clipped(key, 500),
    type,
    reason: 'not_a_service_message',
    message,
    excerpt: clipped(value ?? '', 1000),
  });
  outbox.send(topics.deadLetters, clipped(key ?? '', 500), DEFAULT_TENANT, [letter]).catch((error: unknown) => log.warn('a dead letter was not written', { topic, lane, offset, error: messageOf(error) }));
}
