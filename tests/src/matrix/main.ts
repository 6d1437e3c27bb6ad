import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { runMatrix } from './run-matrix.js';
import { closing, tableOf } from './table.js';

const { values } = parseArgs({
  options: { filter: { type: 'string' }, short: { type: 'boolean', default: false }, json: { type: 'boolean', default: false }, out: { type: 'string' }, help: { type: 'boolean', default: false } },
});
const USAGE = `npm run crash-matrix               every process, boundary, effect class and delivery, then the outages
  --filter REGEX  only cases whose name fits, such as 'ledger.*irreversible' or 'broker'
  --short         outages of seconds instead of a minute
  --json          one JSON document on stdout instead of the table
  --out FILE      the JSON document there, besides
`;

const say = (line: string): void => void process.stderr.write(`${line}\n`);
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    if (stop.signal.aborted) process.exit(130);
    say('Ending; once more to end at once.');
    stop.abort();
  });
}

async function main(): Promise<void> {
  if (values.help) return void process.stdout.write(USAGE);
  const result = await runMatrix({ filter: values.filter === undefined ? undefined : new RegExp(values.filter), short: values.short, say, signal: stop.signal });
  const text = JSON.stringify(result, null, 2);
  if (values.out !== undefined) await writeFile(values.out, `${text}\n`);
  process.stdout.write(values.json ? `${text}\n` : `${tableOf(result.rows)}\n${closing(result.rows)}, ${result.seconds} s\n`);
  if (!result.whole) process.exitCode = 130;
  else if (result.rows.length === 0) {
    say('no case fits the filter');
    process.exitCode = 2;
  } else if (result.rows.some(({ verdict }) => verdict === 'failed')) process.exitCode = 1;
}

main().then(
  () => process.exit(),
  (error: unknown) => {
    say(error instanceof Error ? (error.stack ?? error.message) : String(error));
    process.exit(2);
  },
);
