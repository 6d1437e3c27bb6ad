import type { Command } from 'commander';
import { describeTopics } from '@holdfast/runtime/kafka';
import { durationMs } from '../duration.js';
import { CliError } from '../failure.js';
import { EVENT_TOPICS, follow, unknownTypes, type LiveEvent } from '../live.js';
import { oneLine, progress } from '../print.js';
import { findBrokers } from '../stack-file.js';

interface TailOptions {
  readonly run?: string;
  readonly tenant?: string;
  readonly type?: string[];
  readonly topic?: string[];
  readonly since?: string;
  readonly follow: boolean;
  readonly json?: boolean;
}

export function addTail(program: Command): void {
  program
    .command('tail')
    .description('events as they happen, until Ctrl-C')
    .option('--run <run>', 'of one run, from its first event on')
    .option('--tenant <tenant>', 'of one tenant')
    .option('--type <type...>', 'of these types, such as RunFinished EffectOutcomeUnknown')
    .option('--topic <topic...>', `from these topics (default: ${EVENT_TOPICS.join(', ')})`)
    .option('--since <time>', 'begin so long ago, such as 10m or 2h (default: now)')
    .option('--no-follow', 'end when what is there has been told')
    .option('--json', 'one JSON document a line')
    .action(tailEvents);
}

async function tailEvents({ run, tenant, type, topic, since, follow: goOn, json }: TailOptions): Promise<void> {
  const topics = topic ?? EVENT_TOPICS;
  const { unknown, known } = unknownTypes(type ?? [], topics);
  if (unknown.length > 0) throw new CliError(`no message on ${topics.join(', ')} is of the type ${unknown.join(', ')}; there are ${known.join(', ')}`);
  const brokers = await findBrokers('.');
  if (topic !== undefined) await requireTopics(brokers, topic);
  const from = since !== undefined ? { time: Date.now() - durationMs(since, '--since') } : run !== undefined ? 'beginning' : 'end';
  const stopped = new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve());
    // Whoever reads us went away, as in `| head`.
    process.stdout.once('error', () => resolve());
  });
  const say = (event: LiveEvent): void => void process.stdout.write(`${json === true ? JSON.stringify(event) : inWords(event)}\n`);
  // Topics are read side by side: what is past can be told in the order in which it happened.
  const past: LiveEvent[] = [];
  const reader = await follow({ brokers, topics, from, filter: { run, tenant, types: type }, onEvent: goOn ? say : (event) => past.push(event) });
  try {
    if (!goOn) {
      await reader.caughtUp;
      return past.sort((a, b) => a.time.localeCompare(b.time)).forEach(say);
    }
    await Promise.race([reader.caughtUp, stopped]);
    progress('following; Ctrl-C stops');
    await stopped;
  } finally {
    await reader.close();
  }
}

async function requireTopics(brokers: readonly string[], wanted: readonly string[]): Promise<void> {
  const there = new Set((await describeTopics(brokers, wanted)).map(({ name }) => name));
  const missing = wanted.filter((name) => !there.has(name));
  if (missing.length > 0) throw new CliError(`there is no topic ${missing.join(', ')}: \`holdfast topics describe\` shows those that there are`);
}

const inWords = ({ time, type, run, data }: LiveEvent): string => `${time}  ${run}  ${type}  ${oneLine(data)}`;
