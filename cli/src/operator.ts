import { randomUUID } from 'node:crypto';
import { userInfo } from 'node:os';
import type { Command } from 'commander';
import { decodeHeaders, describeIssues, encodeHeaders, Operator, parseJson, topics, type Json, type Message } from '@holdfast/protocol';
import type { LogWriter } from '@holdfast/runtime';
import { createWriter, laneOf, partitionsOf, tail } from '@holdfast/runtime/kafka';
import { z } from 'zod';
import { isObject } from './json.js';
import { CliError } from './failure.js';

/** How long an answer is waited for, milliseconds. */
const ANSWER_WITHIN_MS = 20_000;

export interface Answer {
  readonly type: string;
  readonly data: { readonly [member: string]: Json };
}

/** Names one command. `again`: whoever named it may have sent it before, and what was decided then holds. */
export interface Asked {
  readonly id: string;
  readonly again: boolean;
}

/**
 * Publishes an operator's command and waits for the event that answers it. Once it is written it
 * will be decided, whether or not anybody waits. One that was answered before is not sent: its
 * owner would pass over it, and say nothing.
 * @throws CliError when no answer came in time
 */
export async function command(options: { brokers: readonly string[]; answersOn: string; run: string; tenant: string; asked: Asked; message: Message; on?: string; /** The partition, where the key does not say it. */ lane?: number; withinMs?: number }): Promise<Answer> {
  const { brokers, answersOn, run, tenant, asked: { id, again }, message, withinMs = ANSWER_WITHIN_MS } = options;
  const on = options.on ?? topics.operatorCommands;
  const lane = options.lane ?? laneOf(run, await partitionsOf(brokers, on));
  const answers: Answer[] = [];
  let answered: (answer: Answer) => void = () => undefined;
  const answer = new Promise<Answer>((resolve) => (answered = resolve));
  const reader = await tail({
    brokers,
    topics: [answersOn],
    lanes: [lane],
    from: again ? 'beginning' : 'end',
    onRecord: (record) => {
      const envelope = decodeHeaders(record.headers, record.key, record.time);
      const parsed = parseJson(record.value ?? '');
      if (envelope?.subject !== run || !parsed.ok || !isObject(parsed.value)) return;
      const { command: own, signal, id: named, cause = null } = parsed.value;
      if (![own, signal, named, isObject(cause) ? cause['command'] : null].includes(id)) return;
      answers.push({ type: envelope.type, data: parsed.value });
      answered({ type: envelope.type, data: parsed.value });
    },
  });
  let writer: LogWriter | undefined;
  let timer: NodeJS.Timeout | undefined;
  try {
    await reader.caughtUp;
    const [before] = answers;
    if (before !== undefined) return before;
    writer = await createWriter({ brokers, clientId: 'cli' });
    const headers = encodeHeaders({ id, type: message.type, source: 'holdfast/cli', subject: run, time: Date.now(), tenant });
    await writer.publish([{ topic: on, ...(options.lane === undefined ? {} : { lane }), key: run, headers, value: JSON.stringify(message.data) }]);
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new CliError(`the command is written and will be decided, but nothing answered within ${withinMs / 1000} s: is the service that owns it running?`)), withinMs);
    });
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
    await Promise.all([reader.close(), writer?.close()]);
  }
}

const CommandId = z.string().min(1).max(200);

/** @throws CliError */
export function askedAs({ id }: { id?: string | undefined }): Asked {
  if (id === undefined) return { id: randomUUID(), again: false };
  const parsed = CommandId.safeParse(id);
  if (!parsed.success) throw new CliError(`--id ${JSON.stringify(id.slice(0, 50))} names no command: it takes 1 to 200 characters`);
  return { id, again: true };
}

export const withCommandId = (made: Command): Command => made.option('--id <id>', 'the command’s id: the same one, sent again, is one command, and is answered as before (default: a random one)');

/** Options that say who acts. Whoever may write to `operator.commands` is believed; the gateway checks people first. */
export const withOperator = (made: Command): Command =>
  withCommandId(made)
    .option('--as <name>', 'who decides (default: HOLDFAST_OPERATOR, else the user of this machine)')
    .option('--role <role...>', 'roles of whoever decides (default: HOLDFAST_ROLES, separated by commas, else operator)');

export function operatorOf({ as: name, role }: { as?: string; role?: string[] }): Operator {
  const roles = role ?? process.env['HOLDFAST_ROLES']?.split(',').map((each) => each.trim()).filter((each) => each !== '') ?? ['operator'];
  const by = Operator.safeParse({ name: name ?? process.env['HOLDFAST_OPERATOR'] ?? userInfo().username, roles });
  if (!by.success) throw new CliError(`who decides (--as, --role): ${describeIssues(by.error)}`);
  return by.data;
}
