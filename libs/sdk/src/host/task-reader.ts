import { unreachable } from '@holdfast/kernel';
import { decodeHeaders, decoder, parseJson, RunId, Tenant, toolTaskMessages, type MessageOf, type RevokeEffect } from '@holdfast/protocol';
import type { LogRecord, Membership } from '@holdfast/runtime';
import type { ToolDefinition } from '../define/tool.js';
import { deadLetter } from './dead-letter.js';
import type { WorkerLog } from './log.js';
import type { Outbox } from './outbox.js';
import type { ProbeTask } from './probing.js';
import { arrive } from './seen.js';
import type { Task, TaskLane } from './task-lane.js';

export interface TaskReaderParts {
  readonly outbox: Outbox;
  readonly log: WorkerLog;
  hosted(name: string, version: string): ToolDefinition | undefined;
}

/** What a record asks of its host: to fire an attempt, not to fire it any more, or to ask what became of it. */
export type Received =
  | { readonly kind: 'fire'; readonly task: Task }
  | { readonly kind: 'revoke'; readonly attempt: MessageOf<typeof RevokeEffect>['data'] }
  | { readonly kind: 'probe'; readonly task: ProbeTask };

const decode = decoder(toolTaskMessages);

/**
 * What one record asks of its lane, if anything. Duplicates are dropped; what no service wrote
 * goes to the dead letters; a gap, a cut log, or a service's message that can't be understood
 * stops the lane with an alarm, since passing it over would lose a task without a trace.
 */
export function readTask(lane: TaskLane, record: LogRecord, polled: Membership, { outbox, log, hosted }: TaskReaderParts): Received | undefined {
  const stop = (because: string): undefined => {
    lane.stopped = true;
    log.error(`lane ${lane.number} of ${record.topic} stands still: ${because}`, { lane: lane.number, topic: record.topic, offset: record.offset, mend: 'find what is missing, then restart this worker' });
    return undefined;
  };
  const again = lane.retake(record.offset, polled);
  if (again !== undefined) return { kind: 'fire', task: again };
  const envelope = decodeHeaders(record.headers, record.key, record.time);
  const arrival = envelope === undefined ? undefined : arrive(lane.received, lane.number, envelope);
  if (record.offset < lane.next) {
    // Read before: dropped then, or handled. Anything new at an old offset means that the log is not the one it was.
    return arrival === undefined || arrival.kind === 'duplicate' || arrival.kind === 'unnumbered' ? undefined : stop(`offset ${record.offset} holds another message than before: the log was cut`);
  }
  if (envelope === undefined || arrival === undefined || arrival.kind === 'unnumbered') {
    lane.passed(record.offset);
    deadLetter(outbox, log, record, envelope?.type ?? null, 'no service wrote it: it has no ce_type or no ce_seq');
    return undefined;
  }
  if (arrival.kind === 'duplicate') {
    lane.passed(record.offset);
    return undefined;
  }
  if (arrival.kind === 'gap') return stop(`messages of ${arrival.source} are missing: the last one seen has ce_seq ${arrival.last}, this one follows ${arrival.prev}`);
  const parsed = parseJson(record.value ?? '');
  if (!parsed.ok) return stop(`its message can't be read: ${parsed.message}`);
  const decoded = decode(envelope.type, parsed.value);
  if (!decoded.ok) return stop(`its message can't be understood, perhaps it is of a newer version: ${decoded.message}`);
  const run = RunId.safeParse(envelope.subject);
  const tenant = Tenant.safeParse(envelope.tenant);
  if (!run.success || !tenant.success) return stop('its message names no valid run or tenant');
  const { message } = decoded;
  const before = lane.received;
  lane.passed(record.offset, arrival.seen);
  switch (message.type) {
    case 'RevokeEffect':
      return { kind: 'revoke', attempt: message.data };
    case 'ProbeEffect':
      return { kind: 'probe', task: { run: run.data, tenant: tenant.data, data: message.data } };
    case 'FireEffect':
      break;
    default:
      return unreachable(message);
  }
  const { data } = message;
  const tool = hosted(data.tool.name, data.tool.version);
  const task: Task = {
    lane: lane.number,
    offset: record.offset,
    run: run.data,
    tenant: tenant.data,
    data,
    // Whoever of the two is stricter: treating an irreversible effect as one that may fire again is the one mistake that can't be mended.
    irreversible: data.effect === 'irreversible' || tool?.effect === 'irreversible',
    bytes: record.value?.length ?? 0,
    before,
    seen: arrival.seen,
    polled,
    state: 'waiting',
  };
  lane.add(task);
  return { kind: 'fire', task };
}
