import Table from 'cli-table3';
import picocolors from 'picocolors';

// Colours are for eyes: what is piped on has none, also where a CI is said to show them.
const pc = picocolors.createColors(process.stdout.isTTY === true && picocolors.isColorSupported);

/** What a command says: text for people, or one JSON document for programs. */
export function print(json: boolean, value: unknown, people: () => string): void {
  process.stdout.write(`${json ? JSON.stringify(value, null, 2) : people()}\n`);
}

/** Progress goes to stderr, so that what is piped on is the answer alone. */
export const progress = (text: string): void => void process.stderr.write(`${pc.dim(text)}\n`);

export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const made = new Table({ head: [...head], style: { head: [], border: [] }, chars: { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' } });
  for (const row of rows) made.push([...row]);
  return made.toString();
}

/** A value on one line, cut where it would not fit. */
const cut = (value: unknown, long: number): string => {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return text.length > long ? `${text.slice(0, long - 1)}…` : text;
};
/** In a cell of a table. */
export const brief = (value: unknown): string => cut(value, 60);
/** After a few words on a line of its own. */
export const oneLine = (value: unknown): string => cut(value, 160);
/** Where it is what one came to see. */
export const atLength = (value: unknown): string => cut(value, 4000);

/** Signs that a terminal takes as an order, or that show other text than there is. JSON lets them stand. */
const UNSEEN = /[\u007f-\u009f\u2028\u2029\p{Cf}]/gu;
const escaped = (text: string): string => Array.from({ length: text.length }, (_, at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, '0')}`).join('');

/** What a yes would allow, to its last sign, and the option that binds the yes to it. */
export const toAllow = (tool: string, args: unknown, digest: string): string => `${tool} ${JSON.stringify(args).replaceAll(UNSEEN, escaped)} --digest ${digest}`;

export function paint(phase: string): string {
  switch (phase) {
    case 'completed':
    case 'succeeded':
    case 'ok':
      return pc.green(phase);
    case 'blocked':
    case 'unknown':
    case 'weak':
    case 'open':
      return pc.yellow(phase);
    case 'failed':
    case 'alarm':
    case 'wrong':
    case 'compensation_failed':
    case 'quarantined':
      return pc.red(phase);
    default:
      return phase;
  }
}
