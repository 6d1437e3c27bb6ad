import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { API_VERSION, describe, endpoints, FIGURES, METRICS_WINDOW_MS } from '@holdfast/gateway';
import { makeProgram } from '@holdfast/cli';
import * as protocol from '@holdfast/protocol';
import { listMetrics } from '@holdfast/runtime/telemetry';
import { commandLine } from './reference/command-line.mjs';
import { configuration } from './reference/configuration.mjs';
import { figuresPage } from './reference/figures.mjs';
import { sdkPage } from './reference/sdk.mjs';
import { z } from 'zod';

/**
 * `node scripts/generate-reference.mjs [--check]`: writes docs/reference/asyncapi.json, the description of every topic
 * and message, from the protocol's zod schemas, and beside it openapi.json, that of the gateway's addresses,
 * command-line.md, that of `holdfast`, figures.md, what figures and metrics are made of, and sdk.md, what users import. `--check` fails where a file is not what it would write.
 */
const fileOf = (name) => fileURLToPath(new URL(`../docs/reference/${name}`, import.meta.url));

const channels = [
  { address: 'agent.intents', messages: protocol.intentMessages, description: 'What agents ask for: start, call a tool, record, finish. Written by workers and any Kafka client.' },
  { address: 'run.events', messages: protocol.runMessages, description: 'The stream of every run; its fold is the run. Written by the orchestrator.' },
  { address: 'run.tasks.{pool}', messages: protocol.runTaskMessages, description: 'Grants and answers for the workers of a pool. Written by the orchestrator.' },
  { address: 'tool.tasks.{pool}', messages: protocol.toolTaskMessages, description: 'Attempts that a tool host of the pool may fire, or must not any more (ledger), and attempts to ask about (reconciliation).' },
  { address: 'tool.results', messages: protocol.toolResultMessages, description: 'Ends of attempts, as their hosts saw them. Evidence: no fence refuses it.' },
  { address: 'effect.events', messages: protocol.effectMessages, description: 'The stream of every run’s effects. Written by the ledger.' },
  { address: 'reconciliation.events', messages: protocol.caseMessages, description: 'The stream of every run’s cases. Written by the reconciliation service.' },
  { address: 'compensation.events', messages: protocol.planMessages, description: 'What every run’s effects would be answered with, and the plans by which they are. Written by the compensation service.' },
  { address: 'operator.commands', messages: protocol.operatorMessages, description: 'What people decide. Written by the command line and the gateway; keyed by run id.' },
  { address: 'contracts', messages: protocol.contractMessages, description: 'What tools and agents declare; compacted, keyed by kind, name and version.' },
  { address: 'worker.events', messages: protocol.workerMessages, description: 'Who serves which pool, with what, and with how much in hand; keyed by worker, kept one day. For people and boards: nothing is decided by it.' },
  { address: 'audit.events', messages: protocol.auditMessages, description: 'Who asked for which privileged act, written before it is carried out; keyed by tenant, kept for ever. Written by the gateway and the command line.' },
  { address: 'dead.letters', messages: protocol.deadLetterMessages, description: 'Messages that could not be read, with where they are and why.' },
];

const headers = {
  type: 'object',
  description: 'CloudEvents 1.0, Kafka binding, binary mode. Outsiders need `ce_type` only.',
  required: ['ce_type'],
  properties: Object.fromEntries(
    Object.entries({
      ce_type: 'message type',
      ce_subject: 'the run id; equals the key',
      ce_id: 'unique for its source',
      ce_source: 'who wrote it',
      ce_time: 'RFC 3339, UTC, milliseconds',
      ce_tenant: 'default: "default"',
      ce_lane: 'services only: the partition',
      ce_seq: 'services only: number of the journal row; one not above the last seen for (source, lane) is a duplicate',
      ce_prevseq: 'services only: seq of the row before on this topic and lane',
      ce_streamversion: 'services only: version of the stream after this event',
      ce_hash: 'services only: head of the stream’s hash chain after this event',
      traceparent: 'W3C trace context',
    }).map(([name, description]) => [name, { type: 'string', description }]),
  ),
};

const messages = new Map(channels.flatMap(({ messages: types }) => types.map((type) => [type.type, type])));
const document = {
  asyncapi: '3.0.0',
  info: { title: 'Holdfast', version: '0.1.0', description: 'Topics and messages, generated from libs/protocol. All topics but `contracts`, `worker.events` and `audit.events` are keyed by run id; values are JSON of at most 256 KiB.' },
  defaultContentType: 'application/json',
  channels: Object.fromEntries(
    channels.map(({ address, messages: types, description }) => [
      address.replace('.{pool}', ''),
      {
        address,
        description,
        ...(address.includes('{pool}') ? { parameters: { pool: { description: 'a group of workers that is deployed and scaled together' } } } : {}),
        messages: Object.fromEntries(types.map(({ type }) => [type, { $ref: `#/components/messages/${type}` }])),
      },
    ]),
  ),
  components: {
    messages: Object.fromEntries(
      [...messages].map(([name, { schema }]) => [name, { name, headers: { $ref: '#/components/schemas/Headers' }, payload: z.toJSONSchema(schema, { unrepresentable: 'any', io: 'input' }) }]),
    ),
    schemas: { Headers: headers },
  },
};

const json = (value) => `${JSON.stringify(value, null, 1)}\n`;
const files = { 'asyncapi.json': json(document), 'openapi.json': json(describe(endpoints, API_VERSION)), 'command-line.md': commandLine(makeProgram()), 'configuration.md': configuration(), 'figures.md': figuresPage(FIGURES, METRICS_WINDOW_MS, listMetrics()), 'sdk.md': sdkPage(fileURLToPath(new URL('../libs/sdk/types/index.d.ts', import.meta.url))) };
for (const [name, text] of Object.entries(files)) {
  if (!process.argv.includes('--check')) await writeFile(fileOf(name), text);
  else if ((await readFile(fileOf(name), 'utf8').catch(() => '')) !== text) {
    process.stderr.write(`docs/reference/${name} is not what the code says: run \`node scripts/generate-reference.mjs\`\n`);
    process.exitCode = 1;
  }
}
