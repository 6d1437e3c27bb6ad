import { parseArgs } from 'node:util';
import Table from 'cli-table3';
import { runDesk } from './desk/run-desk.js';
import { isAsItShould, refundTable, runRefundDesk } from './refund-desk/run-refund-desk.js';
import { runTrip } from './trip/run-trip.js';
import { runTasks, type TaskRow } from './tasks/run-tasks.js';

const { values } = parseArgs({
  options: {
    example: { type: 'string', default: 'desk' },
    tasks: { type: 'string' },
    world: { type: 'string' },
    kill: { type: 'string', default: '0' },
    seed: { type: 'string', default: '1' },
    reword: { type: 'boolean', default: false },
    blind: { type: 'boolean', default: false },
    faults: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

const USAGE = `npm run demo                     a small refund desk over examples/input/
npm run demo -- --example refund-desk   the same desk with approvals, a signal with a deadline, a retry and a cancel
npm run demo -- --example trip   flight, hotel, car and payment, at providers with books of their own
  --faults       every fault of every provider, at booking and at cancelling; exit code 1 where the books don't bear a run's word out
npm run demo -- --tasks FILE     every task of a file is a run, every action a step
  --world URL    PostgreSQL database that the tools change (default: one made for the demo)
  --kill N       kill -9 workers and services N times, in turn
  --seed S       seed of delays and victims (default 1)
  --blind        tools without a probe: a stand-in for a person looks in the world and decides each case
  --reword       after a kill, words for recorded steps differ
  --json         last line is one JSON document
`;

const say = (text: string): void => void process.stderr.write(`${text}\n`);

function whole(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0 || value > 1_000_000) throw new Error(`--${name} ${text}: a whole number from 0 on is needed`);
  return value;
}

function tableOf(rows: readonly TaskRow[]): string {
  const table = new Table({ head: ['run', 'status', 'steps', 'effects', 'time', 'unknown'], style: { head: [], border: [] }, chars: { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' } });
  for (const { run, status, steps, effects, ms, unknown } of rows) table.push([run, status, steps, effects, ms === null ? '–' : `${(ms / 1000).toFixed(2)} s`, unknown.join('; ')]);
  return table.toString();
}

async function trip(): Promise<void> {
  const { result, rows } = await runTrip({ faults: values.faults, say });
  const table = new Table({ head: ['run', 'outcome', 'stands in the books', 'fault'], style: { head: [], border: [] }, chars: { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' } });
  for (const { run, outcome, standing, fault } of rows) table.push([run, outcome, standing.join(', ') || '-', fault ?? '-']);
  process.stdout.write(`${table.toString()}\n`);
  process.stdout.write(values.json ? `${JSON.stringify(result)}\n` : `${result.right} of ${result.runs} runs: the providers’ books are what the run says. ${result.bookings} bookings, ${result.cancellations} cancellations.\n`);
  if (result.right !== result.runs) process.exitCode = 1;
}

async function refundDesk(): Promise<void> {
  const result = await runRefundDesk({ say });
  process.stdout.write(`${refundTable(result)}\n`);
  if (values.json) process.stdout.write(`${JSON.stringify(result)}\n`);
  if (!isAsItShould(result)) process.exitCode = 1;
}

async function main(): Promise<void> {
  if (values.help) return void process.stdout.write(USAGE);
  if (values.example === 'trip') return trip();
  if (values.example === 'refund-desk') return refundDesk();
  if (values.example !== 'desk') throw new Error(`--example ${values.example}: there are desk, refund-desk and trip`);
  if (values.tasks === undefined) {
    const { result, rows } = await runDesk({ say });
    process.stdout.write(`${tableOf(rows)}\n`);
    process.stdout.write(values.json ? `${JSON.stringify(result)}\n` : `${result.completed} of ${result.runs} runs completed; ${result.refunds} refunds and ${result.letters} letters are in the world, each once.\n`);
    if (result.completed !== result.runs) process.exitCode = 1;
    return;
  }
  const { result, rows } = await runTasks({ tasks: values.tasks, world: values.world, kill: whole('kill', values.kill), seed: whole('seed', values.seed), reword: values.reword, blind: values.blind, say });
  process.stdout.write(`${tableOf(rows)}\n`);
  process.stdout.write(
    values.json
      ? `${JSON.stringify(result)}\n`
      : `${result.completed} of ${result.runs} runs completed, ${result.blocked} blocked on an unknown outcome. The world holds ${result.fired} of ${result.effects} effects: ${result.duplicates} twice, ${result.outOfOrder} out of order. ${result.kills} kills, ${result.killsInFlight} of them with an effect in flight. ${result.seconds} s.\n`,
  );
  if (result.duplicates > 0 || result.outOfOrder > 0 || result.missing > 0 || result.completed < result.runs) process.exitCode = 1;
}

main().catch((error: unknown) => {
  say(error instanceof Error ? error.message : String(error));
  process.exit(1);
});
