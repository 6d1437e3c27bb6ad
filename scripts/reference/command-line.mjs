import { EXIT_CODES } from '@holdfast/cli';

/** Commands that shells call, or that explain commands. */
const HIDDEN = new Set(['complete', 'help']);

/** docs/reference/command-line.md: every command with its arguments and options, from the program itself. */
export function commandLine(program) {
  return [
    '# Command line',
    '',
    'Written by `node scripts/generate-reference.mjs`; do not edit.',
    '',
    'Commands find the stack by `HOLDFAST_BROKERS` and `HOLDFAST_DATABASE_URL`, else they take the one that `holdfast up` runs in this folder. Answers go to stdout, as text or with `--json` as one JSON document; progress and what is wrong go to stderr.',
    '',
    EXIT_CODES,
    ...program.commands.flatMap((command) => section(command, program.name())),
    '',
  ].join('\n');
}

function section(command, path) {
  if (HIDDEN.has(command.name())) return [];
  const name = `${path} ${command.name()}`;
  const words = command.registeredArguments.map((argument) => (argument.required ? `<${argument.name()}${argument.variadic ? '...' : ''}>` : `[${argument.name()}${argument.variadic ? '...' : ''}]`));
  const options = command.options.filter((option) => !option.hidden);
  return [
    '',
    `${'#'.repeat(1 + name.split(' ').length - 1)} \`${[name, ...words].join(' ')}\``,
    '',
    sentence(command.description()),
    ...(options.length === 0 ? [] : ['', '| option | meaning |', '| --- | --- |', ...options.map((option) => `| \`${option.flags}\`${option.mandatory ? ' (required)' : ''} | ${cell(option)} |`)]),
    ...command.commands.flatMap((child) => section(child, name)),
  ];
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
const cell = ({ description, defaultValue }) => `${description}${typeof defaultValue === 'string' ? ` (default: \`${defaultValue}\`)` : ''}`.replaceAll('|', '\\|');
