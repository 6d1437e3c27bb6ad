import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { mkdtemp, readdir, rm, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openArtifactStore } from '@holdfast/runtime/artifacts';
import { said } from './said.js';

const DAY_MS = 24 * 60 * 60 * 1000;
const scope = { tenant: 'acme', run: 'r' };
let place: string;

beforeAll(async () => {
  place = await mkdtemp(path.join(tmpdir(), 'hf-artifacts-'));
});
afterAll(() => rm(place, { recursive: true, force: true }));

describe('holdfast artifacts sweep', () => {
  it('removes what is older, and leaves what is not', async () => {
    const store = await openArtifactStore(place);
    const old = await store.put(Buffer.from('old news'), { mediaType: 'text/plain', scope });
    for (const entry of await readdir(place, { recursive: true, withFileTypes: true })) {
      if (entry.isFile()) await utimes(path.join(entry.parentPath, entry.name), new Date(Date.now() - 91 * DAY_MS), new Date(Date.now() - 91 * DAY_MS));
    }
    const young = await store.put(Buffer.from('news'), { mediaType: 'text/plain', scope });
    const { code, out } = await said('artifacts', 'sweep', '--older-than', '90 days', '--at', place, '--json');
    expect(code).toBe(0);
    expect(JSON.parse(out)).toEqual({ place, olderThanMs: 90 * DAY_MS, removed: 1, bytes: 8 });
    await expect(store.get(old, scope)).rejects.toThrow();
    expect(Buffer.from(await store.get(young, scope)).toString()).toBe('news');
  });

  it.each(['90', '', '0 days', '-1 day', 'soon', 'days', `${'9'.repeat(200)} days`])('takes %j for no length of time, and removes nothing', async (olderThan) => {
    const { code, err } = await said('artifacts', 'sweep', `--older-than=${olderThan}`, '--at', place);
    expect(code).toBe(2);
    expect(err).toMatch(/is no length of time: say it with its unit, such as "90 days"/);
  });

  it('asks for a place that is one', async () => {
    const { code, err } = await said('artifacts', 'sweep', '--older-than', '90 days', '--at', 'ftp://somewhere');
    expect(code).toBe(2);
    expect(err).toMatch(/not a place for them/);
  });
});
