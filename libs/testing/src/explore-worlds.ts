import { parseArgs } from 'node:util';
import { explore, type Explored, type Way } from './explore/explore.js';
import { threeSteps } from './explore/three-steps.js';
import { twoHosts, type TwoHostsOptions } from './explore/two-hosts.js';
import { twoInstances } from './explore/two-instances.js';

/** States of a world that has more orders than can be gone here. */
const STATES_MAX = 20_000;

/**
 * `npm run explore [-- --states-max N --only REGEX --first]`: every order in small worlds, through the product's own code.
 * A world with `WHOLE` is gone to its end; one without it has more states than an hour is enough for.
 */
const WHOLE = Infinity;
const none: TwoHostsOptions = { tasks: 1, rebalance: 'none', crashes: false, loses: false, republishes: false, asks: false, holds: 0 };
const moved: TwoHostsOptions = { ...none, rebalance: 'counted out' };
const WORLDS: readonly (readonly [name: string, way: Way, statesMax?: number])[] = [
  ['one host, two attempts, one republication', (choose) => twoHosts(choose, { ...none, tasks: 2, republishes: true }), WHOLE],
  ['one host, three attempts', (choose) => twoHosts(choose, { ...none, tasks: 3 }), WHOLE],
  ['one host, two attempts, one crash, one lost acknowledgement, one republication', (choose) => twoHosts(choose, { ...none, tasks: 2, crashes: true, loses: true, republishes: true }), WHOLE],
  ['one host, one attempt, one crash, one republication, a probe', (choose) => twoHosts(choose, { ...none, crashes: true, republishes: true, asks: true }), WHOLE],
  ['one host, one attempt, one message held up', (choose) => twoHosts(choose, { ...none, holds: 1 }), WHOLE],
  ['two hosts, two attempts, one that joins', (choose) => twoHosts(choose, { ...none, tasks: 2, rebalance: 'joins' }), WHOLE],
  ['two hosts, two attempts, one rebalance', (choose) => twoHosts(choose, { ...moved, tasks: 2 })],
  ['two hosts, one attempt, one rebalance, one crash', (choose) => twoHosts(choose, { ...moved, crashes: true }), WHOLE],
  ['two hosts, one attempt, one rebalance, one lost acknowledgement', (choose) => twoHosts(choose, { ...moved, loses: true }), WHOLE],
  ['two hosts, one attempt, one rebalance, one republication', (choose) => twoHosts(choose, { ...moved, republishes: true }), WHOLE],
  ['two hosts, one attempt, one rebalance, a probe', (choose) => twoHosts(choose, { ...moved, asks: true })],
  ['two hosts, one attempt, one rebalance, one message held up', (choose) => twoHosts(choose, { ...moved, holds: 1 })],
  ['two hosts, two attempts, one rebalance, one crash, one lost acknowledgement, one republication, a probe', (choose) => twoHosts(choose, { ...moved, tasks: 2, crashes: true, loses: true, republishes: true, asks: true })],
  ['two instances, one lane, two requests, one that joins', (choose) => twoInstances(choose, { requests: 2, takenOver: false, crashes: false, loses: false }), WHOLE],
  ['two instances, one lane, one request, one take-over', (choose) => twoInstances(choose, { requests: 1, takenOver: true, crashes: false, loses: false })],
  ['two instances, one lane, one request, one crash, one lost acknowledgement, one take-over', (choose) => twoInstances(choose, { requests: 1, takenOver: true, crashes: true, loses: true })],
  ['one local step, one take-over', (choose) => threeSteps(choose, { steps: 1, crashes: false })],
  ['three local steps, one take-over', (choose) => threeSteps(choose, { steps: 3, crashes: false })],
  ['three local steps, one crash, one take-over', (choose) => threeSteps(choose, { steps: 3, crashes: true })],
];

const gone = ({ whole, departures }: Explored): string => (whole ? 'every order' : `not whole, the limit came first: every order with at most ${departures} departures from that of sending, faults and take-overs counted`);

const { values } = parseArgs({ options: { 'states-max': { type: 'string' }, only: { type: 'string', default: '' }, first: { type: 'boolean', default: false } } });
let [failed, whole] = [0, 0];
const worlds = WORLDS.filter(([name]) => new RegExp(values.only).test(name));
for (const [name, way, most = STATES_MAX] of worlds) {
  const explored = await explore(way, values['states-max'] === undefined ? most : Number(values['states-max']));
  const { states, ways, ends, violations } = explored;
  process.stdout.write(`${name}: ${states} states, ${ways} ways, ${ends} to the end; ${gone(explored)}\n`);
  for (const { what, choices } of violations) process.stdout.write(`  ${what}\n  choices: ${choices.join()}\n`);
  failed += violations.length;
  whole += explored.whole ? 1 : 0;
  if (values.first && failed > 0) break;
}
process.stdout.write(`${worlds.length} worlds, ${whole} whole, ${failed} violations\n`);
process.exitCode = failed > 0 ? 1 : 0;
