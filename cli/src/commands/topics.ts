import type { Command } from 'commander';
import { Pool, fixedTopics, poolTopics } from '@holdfast/protocol';
import { describeTopics, ensurePoolTopics, ensureTopics, topicFaults, type DescribedTopic } from '@holdfast/runtime/kafka';
import ms from 'ms';
import { CliError, EXIT } from '../failure.js';
import { print, table } from '../print.js';
import { findBrokers } from '../stack-file.js';
import { whole } from '../whole.js';

export function addTopics(program: Command): void {
  const topics = program.command('topics').description('Holdfast’s topics of a cluster: make them, check them, look at them');
  topics
    .command('create')
    .description('make those that are missing; those that are there are left as they are')
    .option('--partitions <n>', 'lanes: the same number on every topic, for the life of the cluster', '12')
    .option('--replication <n>', 'copies of each', '3')
    .option('--pool <name...>', 'the topics of these pools of workers too')
    .option('--json', 'print JSON')
    .action(create);
  topics
    .command('check')
    .description('compare each topic with what Holdfast needs; exit code 1 where something would be lost or refused')
    .option('--partitions <n>', 'how many lanes there shall be (default: as many as the first topic has)')
    .option('--json', 'print JSON')
    .action(async ({ partitions, json }: { partitions?: string; json?: boolean }) => {
      const found = await describeTopics(await findBrokers('.'));
      const faults = topicFaults(found, specsOf(found), partitions === undefined ? undefined : whole(partitions, '--partitions', 1000));
      const grave = faults.some((fault) => fault.grave);
      print(json === true, { ok: !grave, topics: found.length, faults }, () =>
        faults.length === 0 ? `${found.length} topics are as they shall be` : faults.map((fault) => `${fault.grave ? 'wrong' : 'weak '}  ${fault.topic} ${fault.problem}: ${fault.mend}`).join('\n'),
      );
      if (grave) process.exitCode = EXIT.no;
    });
  topics
    .command('describe [topic]')
    .description('partitions, replicas, retention and messages')
    .option('--json', 'print JSON')
    .action(async (topic: string | undefined, { json }: { json?: boolean }) => {
      const found = await describeTopics(await findBrokers('.'), topic === undefined ? undefined : [topic]);
      if (topic !== undefined && found.length === 0) throw new CliError(`there is no topic ${topic}: \`holdfast topics describe\` shows those that there are`);
      print(json === true, { topics: found }, () => (found.length === 0 ? 'none of Holdfast’s topics is there: run `holdfast topics create`' : table(['topic', 'lanes', 'replicas', 'in step', 'kept', 'messages'], found.map(row))));
    });
}

/** The fixed topics, and those of each pool of which one topic is there. */
const specsOf = (found: readonly DescribedTopic[]): typeof fixedTopics => {
  const pools = new Set(found.flatMap(({ name }) => Pool.safeParse(/^(?:run|tool)\.tasks\.(.+)$/.exec(name)?.[1]).data ?? []));
  return [...fixedTopics, ...[...pools].flatMap((pool) => poolTopics(pool))];
};

async function create({ partitions, replication, pool = [], json }: { partitions: string; replication: string; pool?: string[]; json?: boolean }): Promise<void> {
  const lanes = whole(partitions, '--partitions', 1000);
  const copies = whole(replication, '--replication', 9);
  const pools = pool.map((name) => {
    const parsed = Pool.safeParse(name);
    if (!parsed.success) throw new CliError(`--pool ${name}: ${parsed.error.issues[0]?.message ?? 'is no pool'}`);
    return parsed.data;
  });
  const brokers = await findBrokers('.');
  const before = new Set((await describeTopics(brokers)).map(({ name }) => name));
  await ensureTopics(brokers, lanes, copies);
  for (const each of pools) await ensurePoolTopics(brokers, each);
  const made = (await describeTopics(brokers)).map(({ name }) => name).filter((name) => !before.has(name));
  print(json === true, { made }, () => (made.length === 0 ? 'all topics are there' : `made ${made.join(', ')}`));
}

const row = ({ name, partitions, replicas, inSync, retentionMs, compacted, messages }: DescribedTopic): string[] => [
  name,
  String(partitions),
  String(replicas),
  String(inSync),
  compacted ? 'the last of each key' : retentionMs === 'forever' ? 'for ever' : ms(retentionMs, { long: true }),
  String(messages),
];
