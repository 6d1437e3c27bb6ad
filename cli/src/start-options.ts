import { isoTime, JSON_DEPTH_MAX, OnDeadline, parseJson, StartRun, type Json } from '@holdfast/protocol';
import type { StartOptions } from '@holdfast/sdk';
import type { Command } from 'commander';
import { durationMs } from './duration.js';
import { CliError } from './failure.js';
import { momentMs } from './moment.js';

/** What a start can carry, as the command line takes it. */
export interface StartWords {
  readonly pool?: string;
  readonly goal?: string;
  readonly success?: string[];
  readonly principal?: string;
  readonly deadline?: string;
  readonly onDeadline?: string;
  readonly stepsMax?: string;
  readonly attemptsMax?: string;
  readonly tokensMax?: string;
  readonly costMax?: string;
  readonly wallTimeMax?: string;
  readonly concurrencyKey?: string;
  readonly onConcurrent?: string;
  readonly priority?: string;
  readonly queue?: string;
}

export const withStartWords = (made: Command): Command =>
  made
    .option('--pool <pool>', 'the workers that shall run it (default: those that declared the agent)')
    .option('--goal <text>', 'what it is for')
    .option('--success <text...>', 'by what it is known that it did it')
    .option('--principal <name>', 'on whose behalf')
    .option('--deadline <time>', 'how long it may take, such as 10m or "2 days", or until when, RFC 3339')
    .option('--on-deadline <action>', 'what happens then: expire, compensate, or an action with its members as JSON, such as {"action":"escalate","to":"desk","graceMs":3600000} (default: expire)')
    .option('--steps-max <n>', 'budget: steps')
    .option('--attempts-max <n>', 'budget: attempts at effects in all')
    .option('--tokens-max <n>', 'budget: tokens of recorded model calls, in and out together')
    .option('--cost-max <n>', 'budget: cost of recorded model calls, in the unit they are recorded with')
    .option('--wall-time-max <time>', 'budget: time from its acceptance on, such as 30m')
    .option('--concurrency-key <name>', 'names a conversation, of which one run at most goes on at a time')
    .option('--on-concurrent <what>', 'where that conversation has an open run: enqueue (wait for its end), reject (be refused), interrupt (cancel it), rollback (cancel it and have what it did compensated) (default: enqueue)')
    .option('--priority <n>', 'higher ones are let in earlier, from -100 to 100 (default: 0)')
    .option('--queue <time>', 'how long it may wait to be let in; 0s: not at all (default: as the limits say)');

/** The option that gives each member of a start. */
const OPTIONS: Readonly<Record<string, string>> = {
  ...{ pool: '--pool', goal: '--goal', success: '--success', principal: '--principal', deadline: '--deadline', onDeadline: '--on-deadline' },
  ...{ 'budgets.stepsMax': '--steps-max', 'budgets.attemptsMax': '--attempts-max', 'budgets.tokensMax': '--tokens-max', 'budgets.costMax': '--cost-max', 'budgets.wallTimeMaxMs': '--wall-time-max' },
  ...{ concurrencyKey: '--concurrency-key', onConcurrent: '--on-concurrent', priority: '--priority', queueMs: '--queue' },
};

/**
 * What the words say, held against the message that it will be.
 * @throws CliError that names the option, what it was given and what it takes
 */
export function startOptionsOf(words: StartWords, input: Json, now: number): StartOptions {
  const lasts = (text: string | undefined, option: string): number | undefined => (text === undefined ? undefined : durationMs(text, option));
  const budgets = defined({ stepsMax: numberOf(words.stepsMax), attemptsMax: numberOf(words.attemptsMax), tokensMax: numberOf(words.tokensMax), costMax: numberOf(words.costMax), wallTimeMaxMs: lasts(words.wallTimeMax, '--wall-time-max') });
  const data = defined({
    ...{ agent: null, input, pool: words.pool, goal: words.goal, success: words.success, principal: words.principal },
    ...{ deadline: deadlineOf(words.deadline, now), onDeadline: actionOf(words.onDeadline), budgets: Object.keys(budgets).length === 0 ? undefined : budgets },
    ...{ concurrencyKey: words.concurrencyKey, onConcurrent: words.onConcurrent, priority: numberOf(words.priority), queueMs: lasts(words.queue, '--queue') },
  });
  const parsed = StartRun.schema.safeParse(data);
  if (!parsed.success) throw new CliError(parsed.error.issues.map(({ path, message }) => `${namedBy(path, words)}: ${message}`).join('; '));
  const { agent: _, input: __, parent: ___, onDeadline, ...rest } = parsed.data;
  return { ...rest, ...(onDeadline === undefined ? {} : { onDeadline: asked(onDeadline) }) };
}

function namedBy(path: readonly PropertyKey[], words: StartWords): string {
  const option = OPTIONS[path.slice(0, 2).join('.')] ?? OPTIONS[String(path[0])] ?? path.join('.');
  const word = option.slice(2).replace(/-[a-z]/g, (part) => part.slice(1).toUpperCase());
  const given = Object.entries(words).find(([name]) => name === word)?.[1] as string | string[] | undefined;
  const text = Array.isArray(given) ? given[Number(path[1] ?? 0)] : given;
  return `${option} ${JSON.stringify((text ?? '').slice(0, 100))}`;
}

/** NaN for what is none: a `Number('')` is 0. */
const numberOf = (text: string | undefined): number | undefined => (text === undefined ? undefined : /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN);

function deadlineOf(text: string | undefined, now: number): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{4}-/.test(text)) return now + durationMs(text, '--deadline', 1);
  const at = momentMs(text, '--deadline');
  if (at <= now) throw new CliError(`--deadline ${text} is over: it is ${isoTime(now)}`);
  return at;
}

function actionOf(text: string | undefined): OnDeadline | undefined {
  if (text === undefined) return undefined;
  const given = text.trimStart().startsWith('{') ? parseJson(text, JSON_DEPTH_MAX) : { ok: true as const, value: { action: text } };
  if (!given.ok) throw new CliError(`--on-deadline ${text} is no JSON: ${given.message}`);
  const parsed = OnDeadline.safeParse(given.value);
  if (parsed.success) return parsed.data;
  const wanted = '"expire", "compensate", {"action":"complete_partially","because":"…"}, {"action":"escalate","to":"…","graceMs":…} or {"action":"remind","everyMs":…,"times":…}';
  throw new CliError(`--on-deadline ${text}: ${parsed.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; ')}; it takes ${wanted}`);
}

/** As the SDK names it. */
function asked(action: OnDeadline): NonNullable<StartOptions['onDeadline']> {
  switch (action.action) {
    case 'remind':
      return { action: 'remind', every: action.everyMs, times: action.times };
    case 'escalate':
      return { action: 'escalate', to: action.to, grace: action.graceMs };
    default:
      return action;
  }
}

const defined = (members: Readonly<Record<string, unknown>>): Record<string, unknown> => Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
