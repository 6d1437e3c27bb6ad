import type { Decider, Decision } from './decider.js';
import { fold } from './decider.js';

/**
 * Given / when / then for a decider: `given(...events).when(command)` is the decision, to be
 * compared by the test's own matcher.
 */
export function specification<Command, State, Event, Ignore extends string, Refuse>(decider: Decider<Command, State, Event, Ignore, Refuse>) {
  return {
    given: (...events: Event[]) => ({
      when: (command: Command): Decision<Event, Ignore, Refuse> => decider.decide(command, fold(decider.evolve, decider.initial, events)),
      state: (): State => fold(decider.evolve, decider.initial, events),
    }),
  };
}
