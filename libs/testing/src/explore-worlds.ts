import { parseArgs } from 'node:util';
import { explore, type Way } from './explore/explore.js';
import { threeSteps } from './explore/three-steps.js';
import { twoHosts } from './explore/two-hosts.js';
import { twoInstances } from './explore/two-instances.js';

/** `npm run explore [-- --states-max N --only REGEX]`: every order in small worlds, through the product's own code. */
const none = { tasks: 1, joins: false, crashes: false, loses: false, republishes: false };
const WORLDS: readonly (readonly [string, Way])[] = [
  ['one host, two attempts, one republication', (choose) => twoHosts(choose, { ...none, tasks: 2, republishes: true })],
  ['one host, one attempt, one crash, one republication', (choose) => twoHosts(choose, { ...none, crashes: true, republishes: true })],
  ['one host, two attempts, one crash, one lost acknowledgement', (choose) => twoHosts(choose, { ...none, tasks: 2, crashes: true, loses: true })],
  ['one host, three attempts, one republication', (choose) => twoHosts(choose, { ...none, tasks: 3, republishes: true })],
  ['two hosts, one attempt, one rebalance', (choose) => twoHosts(choose, { ...none, joins: true })],
  ['two hosts, two attempts, one rebalance, one crash, one lost acknowledgement, one republication', (choose) => twoHosts(choose, { tasks: 2, joins: true, crashes: true, loses: true, republishes: true })],
  ['two instances, one lane, one request, one take-over', (choose) => twoInstances(choose, { requests: 1, crashes: false, loses: false })],
  ['two instances, one lane, two requests, one take-over', (choose) => twoInstances(choose, { requests: 2, crashes: false, loses: false })],
  ['two instances, one lane, one request, one crash, one lost acknowledgement, one take-over', (choose) => twoInstances(choose, { requests: 1, crashes: true, loses: true })],
  ['three local steps, one take-over', (choose) => threeSteps(choose, { steps: 3, crashes: false })],
  ['five local steps, one take-over', (choose) => threeSteps(choose, { steps: 5, crashes: false })],
  ['three local steps, one crash, one take-over', (choose) => threeSteps(choose, { steps: 3, crashes: true })],
];

const { values } = parseArgs({ options: { 'states-max': { type: 'string', default: '200000' }, only: { type: 'string', default: '' } } });
let failed = 0;
const worlds = WORLDS.filter(([name]) => new RegExp(values.only).test(name));
for (const [name, way] of worlds) {
  const { states, ways, ends, violations, whole } = await explore(way, Number(values['states-max']));
  process.stdout.write(`${name}: ${states} states, ${ways} ways, ${ends} to the end${whole ? '' : '; not whole, the limit came first'}\n`);
  for (const { what, choices } of violations) process.stdout.write(`  ${what}\n  choices: ${choices.join()}\n`);
  failed += violations.length;
}
process.stdout.write(`${worlds.length} worlds, ${failed} violations\n`);
process.exitCode = failed > 0 ? 1 : 0;
