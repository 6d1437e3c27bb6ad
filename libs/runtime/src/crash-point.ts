/** Passed by name where a test may kill the process; `about` says what is in hand there, and is asked only when armed. */
export type CrashPoint = (name: string, about?: () => readonly string[]) => void;

/** What a message is to a crash point: its stream and type, and with its step where it has one. */
export function inHand(stream: string, type: string, json: string): readonly string[] {
  const { step } = JSON.parse(json) as { readonly step?: unknown };
  return typeof step === 'string' ? [`${stream}/${type}`, `${stream}/${type}/${step}`] : [`${stream}/${type}`];
}

interface Armed {
  readonly text: string;
  readonly place: string;
  readonly about: string | undefined;
  left: number;
}

/**
 * Named places at which a test can kill the process. Armed by
 * `HOLDFAST_CRASH_AT=<name>[@<about>][:<n>]`, several with commas between: the n-th passage (1 by
 * default) with that in hand, such as `ledger.after-commit@run-7/EffectDispatched`, or
 * `ledger.after-commit@run-7/EffectDispatched/2~1` for that of one step. SIGKILL, since a throw would
 * still run `finally` and ROLLBACK. Unarmed it is an empty function.
 */
export const crashPoint: CrashPoint = armCrashPoints(process.env['HOLDFAST_CRASH_AT'], (reached) => {
  process.stderr.write(reached.map((text) => `crash point ${text} reached\n`).join(''));
  process.kill(process.pid, 'SIGKILL');
});

/** `die` gets all that one passage has reached. */
export function armCrashPoints(settings: string | undefined, die: (reached: readonly string[]) => void): CrashPoint {
  if (settings === undefined || settings === '') return () => undefined;
  const armed = settings.split(',').map(parse);
  return (name, about) => {
    const here = armed.filter(({ place }) => place === name);
    if (here.length === 0) return;
    const inHand = here.some((each) => each.about !== undefined) ? new Set(about?.()) : undefined;
    const passed = here.filter((each) => each.about === undefined || inHand?.has(each.about) === true);
    for (const each of passed) each.left -= 1;
    const reached = passed.filter(({ left }) => left === 0).map(({ text }) => text);
    if (reached.length > 0) die(reached);
  };
}

function parse(text: string): Armed {
  const match = /^([^@:]+)(?:@(.+?))?(?::(\d+))?$/.exec(text);
  if (match?.[1] === undefined) throw new Error(`HOLDFAST_CRASH_AT: "${text}" is no <name>[@<about>][:<n>]`);
  return { text, place: match[1], about: match[2], left: Number(match[3] ?? 1) };
}
