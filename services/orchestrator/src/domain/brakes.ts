import { ignore, record } from '@holdfast/kernel';
import { brakeKey, BrakeReleased, BrakeSet, InputRefused, RunPaused, RunUnpaused, type BrakeTarget, type Named, type Operator } from '@holdfast/protocol';
import type { Command, RunDecision } from './commands.js';
import { mayNot } from './people.js';
import type { KnownRun, Run, RunEvent } from './run.js';

export interface Brake {
  readonly target: BrakeTarget;
  readonly by: Operator;
  readonly reason: string;
  readonly command: string;
}

/** What is held still on a lane, and who let go last of what was. */
export interface Brakes {
  readonly set: ReadonlyMap<string, Brake>;
  readonly released: ReadonlyMap<string, { readonly by: Operator; readonly command: string }>;
  /** Commands that have had their answer. */
  readonly inputs: ReadonlySet<string>;
}

export const noBrakes: { readonly status: 'brakes' } & Brakes = { status: 'brakes', set: new Map(), released: new Map(), inputs: new Set() };

type BrakesState = Extract<Run, { status: 'brakes' }>;

export function evolveBrakes(brakes: BrakesState, event: RunEvent): BrakesState {
  switch (event.type) {
    case 'BrakeSet': {
      const { target, by, reason, command } = event.data;
      return { ...brakes, set: new Map(brakes.set).set(brakeKey(target), { target, by, reason, command }), inputs: new Set(brakes.inputs).add(command) };
    }
    case 'BrakeReleased': {
      const { target, by, command } = event.data;
      const key = brakeKey(target);
      return { ...brakes, set: new Map([...brakes.set].filter(([name]) => name !== key)), released: new Map(brakes.released).set(key, { by, command }), inputs: new Set(brakes.inputs).add(command) };
    }
    case 'InputRefused':
      return { ...brakes, inputs: new Set(brakes.inputs).add(event.data.id) };
    default:
      return brakes;
  }
}

const covers = (target: BrakeTarget, kind: 'tool' | 'agent', named: Named): boolean => target.kind === kind && target.name === named.name && (target.version === undefined || target.version === named.version);

/** The brakes that hold a run. */
export const onRun = (brakes: Brakes, { tenant, agent }: Pick<KnownRun, 'tenant' | 'agent'>): Brake[] =>
  [...brakes.set.values()].filter(({ target }) => (target.kind === 'tenant' ? target.name === tenant : agent !== null && covers(target, 'agent', agent)));

/** The brake that holds a tool; null when none does. */
export const onTool = (brakes: Brakes, tool: Named): Brake | null => [...brakes.set.values()].find(({ target }) => covers(target, 'tool', tool)) ?? null;

/** A lane's own decision on a brake. One word for each lane: an operator whose command reached some of them sends the same again. */
export function setBrake(command: Command<'set_brake'> | Command<'release_brake'>, brakes: Brakes): RunDecision {
  const { asked, at } = command;
  const { target, by, command: id } = asked;
  if (brakes.inputs.has(id)) return ignore('duplicate');
  const input = command.type === 'set_brake' ? 'SetBrake' : 'ReleaseBrake';
  const missing = mayNot(input, asked);
  if (missing !== null) return missing;
  const isSet = brakes.set.has(brakeKey(target));
  if (command.type === 'set_brake') {
    const { reason } = command.asked;
    if (!isSet) return record(BrakeSet({ target, by, reason, command: id, at }));
  } else if (isSet) {
    return record(BrakeReleased({ target, by, command: id, at }));
  }
  return record(InputRefused({ input, id, command: id, by, reason: 'not_possible', message: `${brakeKey(target)} is ${isSet ? 'held still already' : 'not held still'}` }));
}

/** Brings a run in step with the brakes of its lane. */
export function brake({ brakes, at }: Command<'brake'>, run: KnownRun): RunDecision {
  if (run.status !== 'open') return ignore('run_over');
  const holding = new Map(onRun(brakes, run).map((each) => [brakeKey(each.target), each]));
  const set = [...holding].flatMap(([name, { by, reason, command }]) => (run.brakes.has(name) ? [] : [RunPaused({ by, reason, command, at, brake: name })]));
  const released = [...run.brakes.keys()].flatMap((name) => {
    const { by, command } = brakes.released.get(name) ?? { by: { name: 'unknown', roles: [] }, command: '' };
    return holding.has(name) ? [] : [RunUnpaused({ by, command, at, brake: name })];
  });
  const [first, ...rest] = [...set, ...released];
  return first === undefined ? ignore('nothing_new') : record<RunEvent>(first, ...rest);
}
