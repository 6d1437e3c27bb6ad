import { describe, expect, it } from '@jest/globals';
import { armCrashPoints, inHand } from '../src/crash-point.js';

/** Passes the places named, and says what was reached at which of them. */
function reached(settings: string | undefined, passages: readonly (readonly [string, ...string[]])[]): [number, readonly string[]][] {
  const found: [number, readonly string[]][] = [];
  let now = 0;
  const pass = armCrashPoints(settings, (texts) => found.push([now, texts]));
  for (const [place, ...about] of passages) {
    pass(place, () => about);
    now += 1;
  }
  return found;
}

describe('a crash point', () => {
  it('is nothing where none is armed, and asks nothing', () => {
    const pass = armCrashPoints(undefined, () => {
      throw new Error('reached');
    });
    pass('ledger.after-commit', () => {
      throw new Error('asked');
    });
    expect(reached('', [['ledger.after-commit']])).toEqual([]);
  });

  it('is reached at its n-th passage, once', () => {
    expect(reached('a.x:2', [['a.x'], ['a.y'], ['a.x'], ['a.x']])).toEqual([[2, ['a.x:2']]]);
    expect(reached('a.x', [['a.y'], ['a.x'], ['a.x']])).toEqual([[1, ['a.x']]]);
  });

  it('counts only passages with its own in hand', () => {
    expect(reached('a.x@run-1/Done:2', [['a.x', 'run-1/Begun'], ['a.x', 'run-1/Done'], ['a.x', 'run-2/Done'], ['a.x', 'run-2/Done', 'run-1/Done']])).toEqual([[3, ['a.x@run-1/Done:2']]]);
  });

  it('of several, names all that one passage reaches', () => {
    expect(reached('a.x@one,a.x@two,a.x@three', [['a.x', 'two', 'one'], ['a.x', 'three']])).toEqual([
      [0, ['a.x@one', 'a.x@two']],
      [1, ['a.x@three']],
    ]);
  });

  it('has a message in hand under its type, and with its step where it has one', () => {
    expect(inHand('run-1', 'Done', '{"step":"2~1"}')).toEqual(['run-1/Done', 'run-1/Done/2~1']);
    expect(inHand('run-1', 'Ended', '{"ending":{"step":"2"}}')).toEqual(['run-1/Ended']);
    expect(reached('a.x@run-1/Done/2~1', [['a.x', ...inHand('run-1', 'Done', '{"step":"2"}')] as ['a.x'], ['a.x', ...inHand('run-1', 'Done', '{"step":"2~1"}')] as ['a.x']])).toEqual([[1, ['a.x@run-1/Done/2~1']]]);
  });

  it('refuses a setting that it can’t read', () => {
    expect(() => armCrashPoints('@run', () => undefined)).toThrow('"@run"');
  });
});
