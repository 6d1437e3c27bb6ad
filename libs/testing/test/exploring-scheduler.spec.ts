import { describe, expect, it } from '@jest/globals';
import { explore } from '../src/explore/explore.js';
import { ExploringScheduler, type Choose } from '../src/explore/exploring-scheduler.js';
import { BEGINNING, type Owner } from '../src/sim/scheduler.js';

const owner = (name: string): Owner => ({ name, alive: true, frozenUntil: 0 });
const FAR = BEGINNING + 60_000;

/** Every outcome of a small world: what `make` returns at the end of each of its orders, and how many states there were. */
async function outcomes(make: (scheduler: ExploringScheduler) => () => string, about: { holds?: number; actions?: (scheduler: ExploringScheduler) => { name: string; act: () => void }[]; standing?: () => string } = {}): Promise<{ ends: string[]; states: number }> {
  const ends = new Set<string>();
  const { states, whole } = await explore(async (choose: Choose) => {
    let end = (): string => '';
    const scheduler: ExploringScheduler = new ExploringScheduler({ choose, actions: () => about.actions?.(scheduler) ?? [], standing: () => end(), holds: () => about.holds ?? 0 });
    end = make(scheduler);
    // Whoever gives a way up says so by ending it early: it is no outcome.
    if ((await scheduler.run(() => false, FAR)) !== 'over') ends.add(end());
    return [];
  });
  expect(whole).toBe(true);
  return { ends: [...ends].sort(), states };
}

describe('an exploring scheduler', () => {
  it('lets messages arrive in every order, and timers only when nothing is under way', async () => {
    const { ends } = await outcomes((scheduler) => {
      const heard: string[] = [];
      for (const name of ['a', 'b']) scheduler.at(scheduler.now, owner(name), () => void heard.push(name), { name });
      scheduler.at(scheduler.now + 10, owner('c'), () => void heard.push('timer'), { name: 'c', timer: true });
      return () => heard.join();
    });
    expect(ends).toEqual(['a,b,timer', 'b,a,timer']);
  });

  it('lets one message be held up while time passes', async () => {
    const { ends } = await outcomes(
      (scheduler) => {
        const heard: string[] = [];
        scheduler.at(scheduler.now, owner('a'), () => void heard.push('a'), { name: 'a' });
        scheduler.at(scheduler.now + 10, owner('b'), () => void heard.push('timer'), { name: 'b', timer: true });
        return () => heard.join();
      },
      { holds: 1 },
    );
    expect(ends).toEqual(['a,timer', 'timer,a']);
  });

  it('answers a question with what held at any moment since it was asked', async () => {
    const { ends } = await outcomes((scheduler) => {
      let value = 1;
      const answers: number[] = [];
      scheduler.read(owner('a'), { name: 'how much?', unheard: false }, () => value, (answer) => void answers.push(answer));
      scheduler.at(scheduler.now, null, () => void (value = 2), { name: 'it becomes 2' });
      return () => `${value}: ${answers.join()}`;
    });
    expect(ends).toEqual(['2: 1', '2: 2']);
  });

  it('answers what was asked in one breath together, and each for itself', async () => {
    const { ends } = await outcomes((scheduler) => {
      const asker = owner('a');
      let value = 1;
      const answers: string[] = [];
      for (const name of ['x', 'y']) scheduler.read(asker, { name, unheard: false }, () => value, (answer) => void answers.push(`${name}${answer}`));
      scheduler.at(scheduler.now, null, () => void (value = 2), { name: 'it becomes 2' });
      return () => answers.join();
    });
    expect(ends).toEqual(['x1,y1', 'x1,y2', 'x2,y1', 'x2,y2']);
  });

  it('lets an action come at any moment, once', async () => {
    const heard: string[] = [];
    const { ends } = await outcomes(
      (scheduler) => {
        heard.length = 0;
        scheduler.at(scheduler.now, owner('a'), () => void heard.push('a'), { name: 'a' });
        return () => heard.join();
      },
      { actions: () => [{ name: 'act', act: () => void heard.push('act') }] },
    );
    expect(ends).toEqual(['a,act', 'act,a']);
  });

  it('takes two orders to the same histories for one state, and keeps apart what one process heard in another order', async () => {
    const two = (owners: readonly Owner[]) => (scheduler: ExploringScheduler) => {
      owners.forEach((of, index) => scheduler.at(scheduler.now, of, () => undefined, { name: `m${index}` }));
      return () => '';
    };
    // Where two different ones hear, only the beginning is a choice; then a third message has two states less to come in.
    const [a, b, c] = ['a', 'b', 'c'].map(owner) as [Owner, Owner, Owner];
    const apart = await outcomes(two([a, b, c]));
    const same = await outcomes(two([a, a, a]));
    expect(apart.states).toBe(4);
    expect(same.states).toBe(4);
    const after = (owners: readonly Owner[]) => (scheduler: ExploringScheduler) => {
      let left = owners.length;
      const next = (): void => {
        left -= 1;
        if (left === 0) for (const name of ['x', 'y']) scheduler.at(scheduler.now, owner(name), () => undefined, { name });
      };
      owners.forEach((of, index) => scheduler.at(scheduler.now, of, next, { name: `m${index}` }));
      return () => String(left);
    };
    expect((await outcomes(after([a, b]))).states).toBe(2);
    expect((await outcomes(after([a, a]))).states).toBe(3);
  });

  it('asks for a name of what happens of itself', () => {
    const scheduler = new ExploringScheduler({ choose: () => 0, actions: () => [], standing: () => '', holds: () => 0 });
    expect(() => scheduler.at(scheduler.now, null, () => undefined)).toThrow('needs a name');
  });
});
