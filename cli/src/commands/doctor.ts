import type { Command } from 'commander';
import type { Finding } from '../doctor/finding.js';
import { examineMachine } from '../doctor/machine.js';
import { examineStack, type OwnServers } from '../doctor/stack.js';
import { EXIT } from '../failure.js';
import { paint, print } from '../print.js';
import { findStack, runningIn } from '../stack-file.js';

export function addDoctor(program: Command): void {
  program
    .command('doctor')
    .description('what is wrong with this machine and with the stack, each with its mend; exit code 1 where something is')
    .option('--all', 'show what is well, too')
    .option('--json', 'print JSON')
    .action(async ({ all, json }: { all?: boolean; json?: boolean }) => {
      const stack = await findStack('.').catch(() => null);
      const findings = [...(await examineMachine('.')), ...(stack === null ? [] : await examineStack(stack, await ownServers()))];
      const wrong = findings.filter(({ state }) => state === 'wrong').length;
      print(json === true, { ok: wrong === 0, stack: stack !== null, findings }, () => inWords(findings, stack !== null, all === true));
      if (wrong > 0) process.exitCode = EXIT.no;
    });
}

/** What the environment names is somebody else's. */
async function ownServers(): Promise<OwnServers> {
  const up = (await runningIn('.')) !== null;
  return { kafka: up && process.env['HOLDFAST_BROKERS'] === undefined, postgres: up && process.env['HOLDFAST_DATABASE_URL'] === undefined };
}

function inWords(findings: readonly Finding[], stack: boolean, all: boolean): string {
  const shown = findings.filter(({ state }) => all || state !== 'ok');
  const of = (state: Finding['state']): number => findings.filter((finding) => finding.state === state).length;
  return [
    ...shown.map(({ what, state, says, mend }) => `${paint(state)}${' '.repeat(7 - state.length)}${what}: ${says}${mend === null ? '' : `\n       ${mend}`}`),
    `${of('ok')} well, ${of('weak')} weak, ${of('wrong')} wrong${stack ? '' : '; no stack runs in this folder, and none is named by HOLDFAST_BROKERS and HOLDFAST_DATABASE_URL'}`,
  ].join('\n');
}
