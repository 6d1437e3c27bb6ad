import { randomUUID } from 'node:crypto';
import { userInfo } from 'node:os';
import type { Command } from 'commander';
import { askedUnder, decodeHeaders, describeIssues, encodeHeaders, isoTime, Operator, otherThan, parseJson, topics, type Asking, type Json } from '@holdfast/protocol';
import type { LogWriter } from '@holdfast/runtime';
import { createWriter, laneOf, partitionsOf, tail } from '@holdfast/runtime/kafka';
import { z } from 'zod';
import { isObject } from './json.js';
import { CliError } from './failure.js';
import { progress } from './print.js';

/** How long an answer is waited for, milliseconds. */
const ANSWER_WITHIN_MS = 20_000;

/** An event that answers. `before`: when it was decided, where that was before it was asked for this time. */
export interface Answer {
  readonly type: string;
  readonly data: { readonly [member: string]: Json };
  readonly before: number | null;
}

/** Names one command. `again`: whoever named it may have sent it before, and what was decided then holds. */
export interface Asked {
  readonly id: string;
  readonly again: boolean;
}

interface Listening {
  readonly brokers: readonly string[];
  readonly answersOn: string;
  readonly run: string;
  /** The partition, where the run does not say it. */
  readonly lane?: number;
  readonly asked: Asked;
  /** As it was asked for: what carries its id must be an answer to this. */
  readonly message: Asking;
}

interface Sending extends Listening {
  readonly on?: string;
  /** Looked up when nothing has answered before: whose the run is, and the message where it says more than was asked for. */
  readonly known: () => Promise<{ readonly tenant: string; readonly message?: Asking }>;
}

/**
 * Publishes an operator's command and waits for the event that answers it. Once it is written it
 * will be decided, whether or not anybody waits. One that was answered before is not sent: its
 * owner would pass over it, and say nothing.
 * @throws CliError when no answer came in time, or its id named another command
 */
export async function command(sending: Sending): Promise<Answer> {
  const answer = await answerTo(sending);
  sayBefore([answer]);
  return answer;
}

/** Where none of these answers is new. */
export function sayBefore(answers: readonly Answer[]): void {
  const times = answers.flatMap(({ before }) => before ?? []);
  if (times.length > 0 && times.length === answers.length) progress(`answered so at ${isoTime(Math.max(...times))}; another --id asks anew`);
}

/** The same as `command`, without a word. */
export async function answerTo(sending: Sending): Promise<Answer> {
  const { brokers, run, asked: { id }, message: asked, known, on = topics.operatorCommands } = sending;
  const listener = await listen(sending);
  let writer: LogWriter | undefined;
  let timer: NodeJS.Timeout | undefined;
  try {
    const before = await listener.before();
    if (before !== null) return before;
    const { tenant, message = asked } = await known();
    writer = await createWriter({ brokers, clientId: 'cli' });
    const headers = encodeHeaders({ id, type: message.type, source: 'holdfast/cli', subject: run, time: Date.now(), tenant });
    await writer.publish([{ topic: on, ...(sending.lane === undefined ? {} : { lane: sending.lane }), key: run, headers, value: JSON.stringify(message.data) }]);
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new CliError(`the command is written and will be decided, but nothing answered within ${ANSWER_WITHIN_MS / 1000} s: is the service that owns it running?`)), ANSWER_WITHIN_MS);
    });
    return await Promise.race([listener.answer(), late]);
  } finally {
    clearTimeout(timer);
    await Promise.all([listener.close(), writer?.close()]);
  }
}

/** What answered a command before; null when nothing did. @throws CliError its id named another command */
export async function answerBefore(listening: Listening): Promise<Answer | null> {
  const listener = await listen(listening);
  try {
    return await listener.before();
  } finally {
    await listener.close();
  }
}

async function listen({ brokers, answersOn, run, lane, asked: { id, again }, message }: Listening) {
  let hear: (answer: Answer) => void = () => undefined;
  const heard = new Promise<Answer>((resolve) => (hear = resolve));
  const reader = await tail({
    brokers,
    topics: [answersOn],
    lanes: [lane ?? laneOf(run, await partitionsOf(brokers, answersOn))],
    from: again ? 'beginning' : 'end',
    onRecord: (record) => {
      const envelope = decodeHeaders(record.headers, record.key, record.time);
      if (envelope?.subject !== run) return;
      const parsed = parseJson(record.value ?? '');
      if (!parsed.ok || !isObject(parsed.value)) return;
      const told = { type: envelope.type, data: parsed.value };
      if (askedUnder(told) === id) hear({ ...told, before: envelope.time });
    },
  });
  const checked = (answer: Answer): Answer => {
    const other = otherThan(message, answer);
    if (other !== null) throw new CliError(`--id ${id} named another command (${other}); choose another`);
    return answer;
  };
  return {
    before: async (): Promise<Answer | null> => {
      const answer = await Promise.race([heard, reader.caughtUp]);
      return answer === undefined ? null : checked(answer);
    },
    answer: async (): Promise<Answer> => ({ ...checked(await heard), before: null }),
    close: (): Promise<void> => reader.close(),
  };
}

const CommandId = z.string().min(1).max(200);

/** @throws CliError */
export function askedAs({ id }: { id?: string | undefined }): Asked {
  if (id === undefined) return { id: randomUUID(), again: false };
  const parsed = CommandId.safeParse(id);
  if (!parsed.success) throw new CliError(`--id ${JSON.stringify(id.slice(0, 50))} names no command: it takes 1 to 200 characters`);
  return { id, again: true };
}

export const withCommandId = (made: Command): Command => made.option('--id <id>', 'the command’s id: the same one, sent again, is one command, and is answered as before; another command needs another (default: a random one)');

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
