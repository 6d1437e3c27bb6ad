import { GatewaySettings } from '@holdfast/gateway';
import { ServiceSettings } from '@holdfast/runtime/nest';
import { z } from 'zod';

/** Settings of parts that read theirs otherwise than by one schema: name, default, meaning. */
const OTHERS = {
  'The orchestrator': [
    ['HOLDFAST_LIMITS', '–', 'limits on open runs, starts and budgets, as JSON: see [limit runs](../how-to/limit-runs.md)'],
    ['HOLDFAST_STUCK_AFTER_MS', '`900000`', 'milliseconds without progress after which a run shows as stuck'],
  ],
  'Reconciliation': [
    ['HOLDFAST_WEBHOOK_URL', '–', 'where reminders and escalations of cases are posted, as Standard Webhooks; goes with the next one'],
    ['HOLDFAST_WEBHOOK_SECRET', '–', 'by which the receiver knows them'],
  ],
  'A worker': [
    ['HOLDFAST_ARTIFACTS', '–', 'where large values go: a folder, or `s3://bucket/prefix`; the same for all workers'],
    ['HOLDFAST_CALLBACK_URL', '–', 'where third parties reach the gateway: callbacks’ addresses begin with it'],
    ['HOLDFAST_CALLBACK_SECRET', '–', 'makes callbacks’ tokens; the same for all workers of a pool'],
    ['HOLDFAST_OTLP', '–', 'as for services'],
    ['HOLDFAST_WORKER_HEALTH_PORT', '–', 'serves /healthz, /readyz and /metrics there; none when absent'],
  ],
  'The local stack and the command line': [
    ['HOLDFAST_BROKERS', '–', 'this Kafka instead of the folder’s own'],
    ['HOLDFAST_DATABASE_URL', '–', 'this PostgreSQL instead of the folder’s own'],
    ['HOLDFAST_KAFKA_PORT', '`19092`', 'port of the local stack’s Kafka'],
    ['HOLDFAST_KAFKA_CONTROLLER_PORT', '`19093`', 'port of its controller'],
    ['HOLDFAST_POSTGRES_PORT', '`15432`', 'port of the local stack’s PostgreSQL'],
    ['HOLDFAST_GATEWAY', 'on', '`off`: `holdfast up` starts no gateway'],
    ['HOLDFAST_OPERATOR', 'the user of the machine', 'who decides, in commands'],
    ['HOLDFAST_ROLES', '`operator`', 'roles of whoever decides, with commas between'],
  ],
  'For tests alone': [
    ['HOLDFAST_CRASH_AT', '–', 'kills a process at a named point: see [tests](../testing.md)'],
    ['HOLDFAST_CLOCK_OFFSET_MS', '–', 'makes one process’s clock wrong by so many milliseconds'],
  ],
};

/** docs/reference/configuration.md: what each part reads from its environment, from its own schema where it has one. */
export function configuration() {
  const services = settingsOf(ServiceSettings);
  const gateway = settingsOf(GatewaySettings).filter(([name]) => !services.some(([known]) => known === name));
  return [
    '# Configuration',
    '',
    'Written by `node scripts/generate-reference.mjs`; do not edit. Everything is read from the environment; a wrong value keeps a process from starting, and the error names it. Services take an empty one for none.',
    ...table('Every service', services),
    ...table('The gateway, besides', gateway),
    ...Object.entries(OTHERS).flatMap(([part, rows]) => table(part, rows)),
    '',
  ].join('\n');
}

function settingsOf(schema) {
  const { properties, required = [] } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' });
  return Object.entries(properties).map(([name, { description = '', default: standard }]) => [name, standard === undefined ? (required.includes(name) ? 'required' : '–') : `\`${standard}\``, `${description.charAt(0).toLowerCase()}${description.slice(1)}`]);
}

const table = (title, rows) => ['', `## ${title}`, '', '| variable | default | meaning |', '| --- | --- | --- |', ...rows.map(([name, standard, meaning]) => `| \`${name}\` | ${standard} | ${meaning.replaceAll('|', '\\|')} |`)];
