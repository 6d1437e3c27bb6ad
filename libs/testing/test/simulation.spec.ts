import { createHash } from 'node:crypto';
import { describe, expect, it } from '@jest/globals';
import { runSeed, runUninterrupted, type SeedResult } from '../src/sim/seeds.js';

/** `npm run simulate` goes through as many more as anyone likes. */
const SEEDS = process.env['HOLDFAST_PROOF'] === 'full' ? 200 : 16;
const digest = ({ story }: SeedResult): string => createHash('sha256').update(JSON.stringify(story)).digest('hex');

describe('simulation', () => {
  it('keeps the invariants in random worlds full of faults', async () => {
    const failures: string[] = [];
    let [runs, steps, waits, faults] = [0, 0, 0, 0];
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const result = await runSeed(seed);
      runs += result.runs;
      steps += result.steps;
      waits += result.waits;
      faults += result.faults.length;
      if (result.violations.length > 0) failures.push(`seed ${seed}: ${result.violations.join('; ')}`);
    }
    expect(failures).toEqual([]);
    expect(steps / runs).toBeGreaterThanOrEqual(8);
    expect(waits / runs).toBeGreaterThanOrEqual(1);
    expect(faults / runs).toBeGreaterThanOrEqual(2);
  });

  it('judges equality by what the uninterrupted run really comes to', async () => {
    for (let seed = 1; seed <= SEEDS / 4; seed += 1) expect(await runUninterrupted(seed)).toEqual([]);
  });

  it('does not count as at rest while a task waits for a host that is cut off, though it was revoked', async () => {
    const faults = [
      { at: 'site', kind: 'crash_after', site: 'publish', nth: 1, process: 'orchestrator-1#1' },
      { at: 'site', kind: 'crash_after', site: 'store.lock', nth: 1, process: 'ledger-1#1' },
      { at: 'site', kind: 'slow', site: 'store.commit', nth: 1, process: 'orchestrator-1#2' },
      { at: 'site', kind: 'doubled', site: 'publish.results', nth: 1, process: 'worker-1#1' },
      { at: 'site', kind: 'crash_before', site: 'fire.local', nth: 1, process: 'worker-1#1' },
      { at: 'time', kind: 'cut_off', target: 'worker-3', ms: 8600, forMs: 3000 },
    ] as const;
    expect((await runSeed(5065, { faults })).violations).toEqual([]);
  });

  it('replays a seed exactly, by its number and by its list of faults', async () => {
    for (const seed of [3, 17]) {
      const first = await runSeed(seed, { trace: true });
      const second = await runSeed(seed, { trace: true });
      const scripted = await runSeed(seed, { trace: true, faults: first.faults });
      expect(first.story.length).toBeGreaterThan(500);
      expect(digest(second)).toBe(digest(first));
      expect(digest(scripted)).toBe(digest(first));
    }
  });
});
