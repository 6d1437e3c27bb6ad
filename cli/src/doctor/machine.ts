import path from 'node:path';
import { checkMachine } from '@holdfast/deploy';
import { runningIn, STATE_DIR } from '../stack-file.js';
import { findingsOf, fromSentence, type Finding } from './finding.js';

const NODE_MINIMUM = [20, 20] as const;
const machine = findingsOf('machine');

/** What would keep a stack from starting in this folder. */
export async function examineMachine(dir: string): Promise<Finding[]> {
  const checks = await checkMachine({ dir: path.join(dir, STATE_DIR), running: (await runningIn(dir)) !== null });
  return [node(process.versions.node), ...checks.map(({ what, problem }) => (problem === null ? machine.ok(what, 'fit') : fromSentence('machine', what, problem)))];
}

export function node(version: string): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [wantedMajor, wantedMinor] = NODE_MINIMUM;
  const fits = major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
  return fits ? machine.ok('Node.js', version) : machine.wrong('Node.js', `is ${version}, and Holdfast needs ${NODE_MINIMUM.join('.')} or newer`, 'install a newer one');
}
