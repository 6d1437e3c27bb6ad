/**
 * What a command leads to. Doing nothing is a decision with a reason; the counters of duplicates
 * and late messages fall out of it.
 */
export type Decision<Event, Ignore extends string = string, Refuse = unknown> =
  | { readonly kind: 'record'; readonly events: readonly [Event, ...Event[]] }
  | { readonly kind: 'ignore'; readonly because: Ignore }
  | { readonly kind: 'refuse'; readonly because: Refuse };

/**
 * A decider: three pure values. Time, ids and chance arrive in the command; a fold never asks the
 * world. (The pattern is Jérémie Chassaing's.)
 */
export type Decider<Command, State, Event, Ignore extends string = string, Refuse = unknown> = Readonly<{
  initial: State;
  decide: (command: Command, state: State) => Decision<Event, Ignore, Refuse>;
  evolve: (state: State, event: Event) => State;
}>;

export const record = <Event>(...events: [Event, ...Event[]]): { kind: 'record'; events: [Event, ...Event[]] } => ({ kind: 'record', events });
export const ignore = <Ignore extends string>(because: Ignore): { kind: 'ignore'; because: Ignore } => ({ kind: 'ignore', because });
export const refuse = <Refuse>(because: Refuse): { kind: 'refuse'; because: Refuse } => ({ kind: 'refuse', because });

/** The state that a stream of events amounts to. */
export function fold<State, Event>(evolve: (state: State, event: Event) => State, initial: State, events: Iterable<Event>): State {
  let state = initial;
  for (const event of events) state = evolve(state, event);
  return state;
}
