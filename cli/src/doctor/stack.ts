import { databaseOf, SERVICES, type ServiceName } from '@holdfast/deploy';
import { CLOCK_SKEW_MS, topics } from '@holdfast/protocol';
import { openArtifactStore } from '@holdfast/runtime/artifacts';
import { describeGroups, describeTopics, partitionEnds, topicFaults } from '@holdfast/runtime/kafka';
import ms from 'ms';
import { readCases } from '../cases.js';
import { problems, readContracts } from '../contracts.js';
import { databaseStates } from '../migrations.js';
import { withClient } from '../pg-client.js';
import type { StackFile } from '../stack-file.js';
import { findingsOf, looked, type Finding } from './finding.js';
import { unequalPools, workersAlive } from './pools.js';
import { recent } from './recent.js';

/** A row that waits longer than this to be published does not get out. Milliseconds. */
const UNPUBLISHED_MAX_MS = 10_000;
const WORKERS_WITHIN_MS = 5 * 60_000;
const LETTERS_WITHIN_MS = 24 * 60 * 60_000;
const GATEWAY_WITHIN_MS = 5000;
const RUNS_NAMED = 10;
const stack = findingsOf('stack');

/** Which servers `holdfast up` has started in this folder. */
export interface OwnServers {
  readonly kafka: boolean;
  readonly postgres: boolean;
}
const UP_AGAIN = '`holdfast up` starts it again by itself; where it does not, end that with Ctrl-C and run `holdfast up` again: what was stored is kept';

/** What is wrong with a stack that runs, or ought to. Changes nothing. */
export async function examineStack({ brokers, databaseUrl, artifacts, gateway }: StackFile, own: OwnServers = { kafka: false, postgres: false }): Promise<Finding[]> {
  const kafka = await looked('stack', 'Kafka', own.kafka ? UP_AGAIN : `start a broker at ${brokers.join(', ')}, or correct HOLDFAST_BROKERS`, () => topicsOf(brokers));
  const postgres = await looked('stack', 'PostgreSQL', own.postgres ? UP_AGAIN : 'start it, or correct HOLDFAST_DATABASE_URL', () => databasesOf(databaseUrl));
  const answers = (findings: readonly Finding[]): boolean => findings.some(({ state }) => state === 'ok');
  const rest = await Promise.all([
    ...(answers(kafka) ? [looked('stack', 'services', 'see what Kafka says of its groups', () => servicesOf(brokers)), looked('stack', 'work', 'see that the topics can be read', () => workOf(brokers))] : []),
    ...(answers(kafka) && answers(postgres) ? SERVICES.map((service) => looked('stack', service, `see that ${databaseOf(service)} can be read, and run \`holdfast migrate\``, () => journalOf(service, databaseUrl, brokers))) : []),
    looked('stack', 'artifacts', 'correct HOLDFAST_ARTIFACTS, or bring the store back', async () => (await openArtifactStore(artifacts), [stack.ok('artifacts', artifacts)])),
    ...(gateway === undefined ? [] : [looked('stack', 'gateway', `see what it says at ${gateway}/readyz`, () => gatewayAt(gateway))]),
  ]);
  return [...kafka, ...postgres, ...rest.flat()];
}

async function topicsOf(brokers: readonly string[]): Promise<Finding[]> {
  const found = await describeTopics(brokers);
  const faults = topicFaults(found);
  // Every topic of a development cluster is weak in the same way: one line says it.
  const weak = new Map(faults.filter(({ grave }) => !grave).map((fault) => [fault.problem, fault]));
  return [
    stack.ok('Kafka', `answers at ${brokers.join(', ')}; ${found.length} topics, ${found[0]?.partitions ?? 0} lanes`),
    ...faults.filter(({ grave }) => grave).map(({ topic, problem, mend }) => stack.wrong(`topic ${topic}`, problem, mend)),
    ...[...weak.values()].map(({ topic, problem, mend }) => stack.weak(`topic ${topic} and its like`, problem, mend)),
  ];
}

async function databasesOf(databaseUrl: string): Promise<Finding[]> {
  const asked = Date.now();
  const [version, now] = await withClient(databaseUrl, async (client) => {
    const { rows } = await client.query<{ version: string; now: string }>(`select current_setting('server_version') as version, (extract(epoch from clock_timestamp()) * 1000)::bigint::text as now`);
    return [rows[0]?.version ?? '?', Number(rows[0]?.now)] as const;
  });
  const skew = Math.round(now - (asked + Date.now()) / 2);
  const states = await databaseStates(databaseUrl);
  return [
    stack.ok('PostgreSQL', `answers, ${version}`),
    Math.abs(skew) > CLOCK_SKEW_MS ? stack.wrong('clocks', `the database’s is ${Math.abs(skew)} ms ${skew > 0 ? 'ahead of' : 'behind'} this machine’s; more than ${CLOCK_SKEW_MS} ms are not allowed for`, 'set both by NTP') : stack.ok('clocks', 'agree'),
    ...states.map(({ service, database, exists, pending, foreign }) =>
      !exists
        ? stack.wrong(database, 'is not there', 'run `holdfast migrate`')
        : pending.length > 0
          ? stack.wrong(database, `lacks ${pending.join(', ')}`, 'run `holdfast migrate`')
          : foreign.length > 0
            ? stack.wrong(database, `was brought further by a newer version of the ${service} (${foreign.join(', ')})`, 'run that version, or restore the database from before')
            : stack.ok(database, 'is up to date'),
    ),
  ];
}

async function servicesOf(brokers: readonly string[]): Promise<Finding[]> {
  const groups = await describeGroups(brokers, SERVICES.map((service) => `holdfast.${service}`));
  return SERVICES.map((service) => {
    const group = groups.find(({ id }) => id === `holdfast.${service}`);
    const members = group?.members ?? [];
    if (members.length === 0) return stack.wrong(service, 'no instance of it takes part', 'start one; its own log says why it ended');
    if (group?.state !== 'Stable') return stack.weak(service, `its instances are about to share the lanes anew (${group?.state ?? '?'})`, 'look again in a moment; where it stays so, an instance comes and goes');
    return stack.ok(service, `${members.length} instance${members.length === 1 ? '' : 's'}: ${members.join(', ')}`);
  });
}

interface JournalRow {
  readonly rebuilding: boolean;
  readonly shelved: string;
  readonly runs: readonly string[];
  readonly waiting: string;
  readonly oldest: string | null;
}

async function journalOf(service: ServiceName, databaseUrl: string, brokers: readonly string[]): Promise<Finding[]> {
  const what = `journal of ${service}`;
  const { journal, progress } = await withClient(
    databaseUrl,
    async (client) => ({
      journal: (await client.query<JournalRow>(`select (select rebuilding from incarnation) as rebuilding, (select count(*)::text from shelf) as shelved, array(select distinct stream from shelf order by stream limit ${RUNS_NAMED}) as runs, count(j.*)::text as waiting, min(j.time)::text as oldest from progress p left join journal j on j.lane = p.lane and j.seq > p.published`)).rows[0],
      progress: (await client.query<{ lane: number; offsets: string }>('select lane, offsets from progress')).rows,
    }),
    databaseOf(service),
  );
  if (journal?.rebuilding === true) return [stack.wrong(what, 'a rebuild was begun and not finished: no instance starts', `run \`holdfast rebuild ${service}\` again`)];
  const unpublishedMs = journal === undefined || journal.oldest === null ? 0 : Date.now() - Number(journal.oldest);
  const lag = await lagOf(brokers, progress);
  const behind = `${lag} message${lag === 1 ? '' : 's'} to read`;
  if (unpublishedMs > UNPUBLISHED_MAX_MS) return [stack.wrong(what, `${journal?.waiting ?? '?'} rows are not published, the oldest for ${ms(unpublishedMs, { long: true })}; ${behind}`, `see that an instance of ${service} runs and reaches Kafka; its /readyz says what stands`)];
  if (journal !== undefined && journal.runs.length > 0) return [stack.weak(what, `${journal.shelved} messages rest for runs that the version that runs can’t read, of a newer one: ${journal.runs.join(', ')}${journal.runs.length < RUNS_NAMED ? '' : ' …'}; ${behind}`, `start the newer version of ${service} again`)];
  return [stack.ok(what, `all that it decided is published; ${behind}`)];
}

/** Messages that the lanes have not decided yet. */
async function lagOf(brokers: readonly string[], progress: readonly { readonly lane: number; readonly offsets: string }[]): Promise<number> {
  const read = progress.flatMap(({ lane, offsets }) => Object.entries(JSON.parse(offsets) as Record<string, number>).map(([topic, next]) => ({ lane, topic, next })));
  const names = [...new Set(read.map(({ topic }) => topic))];
  const ends = new Map(await Promise.all(names.map(async (topic) => [topic, await partitionEnds(brokers, topic)] as const)));
  return read.reduce((sum, { lane, topic, next }) => sum + Math.max(0, (ends.get(topic)?.get(lane) ?? 0) - next), 0);
}

async function workOf(brokers: readonly string[]): Promise<Finding[]> {
  const [workers, letters, cases, contracts] = await Promise.all([
    recent(brokers, topics.workerEvents, WORKERS_WITHIN_MS),
    recent(brokers, topics.deadLetters, LETTERS_WITHIN_MS),
    readCases(brokers),
    readContracts(brokers),
  ]);
  const alive = workersAlive(workers, Date.now());
  const open = cases.filter(({ status }) => status === 'open');
  const lacking = contracts.tools.flatMap(problems);
  return [
    alive.length === 0 ? stack.weak('workers', `none is there: ${workers.length === 0 ? `none has shown itself for ${ms(WORKERS_WITHIN_MS, { long: true })}` : 'those that were have stopped, or fallen silent'}. Runs wait for one`, 'start a worker with `serve()`') : stack.ok('workers', alive.map(({ worker }) => worker).join(', ')),
    ...unequalPools(alive, contracts.agents),
    letters.length > 0 ? stack.weak('dead letters', `${letters.length} in the last day`, '`holdfast tail --topic dead.letters --since 24h --no-follow` says what they are') : stack.ok('dead letters', 'none in the last day'),
    open.length > 0 ? stack.weak('cases', `the outcome of ${open.length} effect${open.length === 1 ? '' : 's'} is unknown`, '`holdfast cases list` shows them') : stack.ok('cases', 'no outcome is unknown'),
    lacking.length > 0 ? stack.weak('contracts', `${lacking.length} lines are missing or can’t do what they say`, '`holdfast contracts check` says which') : stack.ok('contracts', `${contracts.tools.length} tools, ${contracts.agents.length} agents`),
  ];
}

async function gatewayAt(url: string): Promise<Finding[]> {
  const response = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(GATEWAY_WITHIN_MS) });
  if (response.ok) return [stack.ok('gateway', `ready at ${url}`)];
  return [stack.wrong('gateway', `is not ready: ${(await response.text()).slice(0, 500)}`, `mend what it names; it says so at ${url}/readyz until then`)];
}
