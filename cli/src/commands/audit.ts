import { writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { compare, type Comparison } from '../audit/compare.js';
import { explain, type Explanation } from '../audit/explain.js';
import { makeAnchor, readAnchor } from '../audit/anchor.js';
import { verify } from '../audit/verify.js';
import { EXIT, noSuchRun } from '../failure.js';
import { paint, print, progress, table } from '../print.js';
import { findStack } from '../stack-file.js';

export function addAudit(program: Command): void {
  const audit = program.command('audit').description('check the record against itself');
  audit
    .command('verify')
    .description('fold the topics alone and compare with every service’s database and the hash chains; exit 1 when anything differs')
    .option('--anchor <file>', 'also compare with signed heads made earlier')
    .option('--key <file>', 'public key (PEM) that the anchor must be signed with')
    .option('--json', 'print JSON')
    .action(async ({ anchor, key, json }: { anchor?: string; key?: string; json?: boolean }) => {
      const stack = await findStack('.');
      const signed = anchor === undefined ? undefined : await readAnchor(anchor, key);
      const result = await verify({ ...stack, ...(signed === undefined ? {} : { anchor: signed }), onProgress: progress });
      if (result.differences.length > 0) process.exitCode = EXIT.no;
      print(json === true, result, () =>
        result.differences.length === 0
          ? `${result.streams} streams with ${result.events} events: chains intact, topics and databases agree`
          : [...result.differences.map(({ topic, stream, problem }) => `${topic} ${stream}: ${problem}`), `${result.differences.length} differences in ${result.streams} streams`].join('\n'),
      );
    });
  audit
    .command('explain <run>')
    .description('label each step fresh or replayed, count what was suppressed, and name the first effect that a naive restart would have doubled')
    .option('--json', 'print JSON')
    .action(async (id: string, { json }: { json?: boolean }) => {
      const explanation = await explain((await findStack('.')).brokers, id);
      if (explanation === null) throw noSuchRun(id);
      print(json === true, explanation, () => people(explanation));
    });
  audit
    .command('compare <run> <reference>')
    .description('set a run, resumed perhaps, beside one of the same code that was not interrupted: step by step, and how they ended; exit 1 when they differ')
    .option('--json', 'print JSON')
    .action(async (id: string, reference: string, { json }: { json?: boolean }) => {
      const compared = await compare((await findStack('.')).brokers, id, reference);
      if ('missing' in compared) throw noSuchRun(compared.missing);
      if (!compared.alike) process.exitCode = EXIT.no;
      print(json === true, compared, () => sideBySide(compared));
    });
  audit
    .command('anchor')
    .description('export the signed heads of all chains; keep the file elsewhere')
    .option('--out <file>', 'where to write it; stdout when absent')
    .option('--key <file>', 'private key (PEM, Ed25519), made when missing', '.holdfast/anchor-key.pem')
    .action(async ({ out, key }: { out?: string; key: string }) => {
      const text = `${JSON.stringify(await makeAnchor((await findStack('.')).brokers, key, new Date()), null, 2)}\n`;
      if (out === undefined) process.stdout.write(text);
      else await writeFile(out, text);
    });
}

function people({ run, phase, steps, resumes, refused, doubledByNaiveRestart }: Explanation): string {
  const rows = steps.map(({ step, what, effect, origin, outcome, attempts }) => [step, what, effect, origin, paint(outcome), String(attempts)]);
  return [
    `run ${run}: ${paint(phase)}`,
    table(['step', 'what', 'effect', 'origin', 'outcome', 'attempts'], rows),
    ...resumes.map(({ fence, because, replayed, refired }) => `resumed under fence ${fence} (${because.replaceAll('_', ' ')}): ${replayed} steps replayed${refired.length === 0 ? '' : `, step ${refired.join(', ')} fired again under its key`}`),
    ...Object.entries(refused).map(([reason, count]) => `refused ${count} × ${reason}`),
    doubledByNaiveRestart === null ? 'a naive restart would have doubled nothing' : `a naive restart would have done step ${doubledByNaiveRestart.step} (${doubledByNaiveRestart.tool}) a second time`,
  ].join('\n');
}

const WORDS_MAX = 60;
const words = (value: unknown): string => {
  const text = JSON.stringify(value);
  return text.length > WORDS_MAX ? `${text.slice(0, WORDS_MAX)}…` : text;
};

function sideBySide({ run, reference, alike, resumes, input, ending, steps }: Comparison): string {
  const rows = steps.map((step) => {
    const either = step.run ?? step.reference;
    const outcomes = step.differs.includes('outcome') || step.differs.includes('missing') ? [words(step.run?.outcome ?? null), words(step.reference?.outcome ?? null)] : [words(step.run?.outcome ?? null), 'the same'];
    return [step.step, either?.what ?? '', ...outcomes, `${step.run?.attempts ?? '-'} / ${step.reference?.attempts ?? '-'}`, step.differs.length === 0 ? '' : step.differs.join(', ')];
  });
  const count = steps.filter(({ differs }) => differs.length > 0).length;
  return [
    table(['step', 'what', run, reference, 'attempts', 'differs in'], rows),
    ...(input.differs ? ['they were started with other inputs'] : []),
    `${run} was taken up again ${resumes.run} times, ${reference} ${resumes.reference} times`,
    ending.differs ? `${run} ended as ${words(ending.run)}, ${reference} as ${words(ending.reference)}` : `both ended as ${words(ending.run)}`,
    alike ? 'alike' : `they differ in ${[...(count > 0 ? [`${count} of ${steps.length} steps`] : []), ...(input.differs ? ['their input'] : []), ...(ending.differs ? ['their end'] : [])].join(' and ')}`,
  ].join('\n');
}
