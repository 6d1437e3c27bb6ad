import { describe, expect, test } from '@jest/globals';
import { fold, ignore, record, refuse, specification, unreachable, type Decider } from '../src/index.js';

type Command = { readonly add: number };
type Event = { readonly added: number };
const counter: Decider<Command, number, Event, 'nothing', 'negative'> = {
  initial: 0,
  decide: ({ add }, state) => (add === 0 ? ignore('nothing') : state + add < 0 ? refuse('negative') : record({ added: add })),
  evolve: (state, { added }) => state + added,
};

describe('a decider', () => {
  const { given } = specification(counter);

  test('records, ignores or refuses, always with a reason', () => {
    expect(given().when({ add: 2 })).toEqual({ kind: 'record', events: [{ added: 2 }] });
    expect(given().when({ add: 0 })).toEqual({ kind: 'ignore', because: 'nothing' });
    expect(given({ added: 1 }).when({ add: -2 })).toEqual({ kind: 'refuse', because: 'negative' });
  });

  test('decides on the fold of what was given, in order', () => {
    expect(given({ added: 3 }, { added: -1 }).state()).toBe(2);
    expect(given({ added: 3 }, { added: -1 }).when({ add: -2 }).kind).toBe('record');
    expect(fold((state: string, event: string) => state + event, '', new Set(['a', 'b', 'c']))).toBe('abc');
    expect(fold(counter.evolve, 7, [])).toBe(7);
  });

  test('a case that no one foresaw is named', () => {
    expect(() => unreachable({ type: 'odd' } as never)).toThrow('unhandled case: {"type":"odd"}');
  });
});
