import { describe, expect, it } from '@jest/globals';
import { encodeHeaders } from '@holdfast/protocol';
import { journalBehind } from '../src/nest/journal-check.js';
import type { LogRecord } from '../src/ports.js';
import type { StreamHead } from '../src/store/types.js';

const TOPIC = 'run.events';
const LANE = 2;

const event = (offset: number, version: number, source = 'holdfast/orchestrator/life-1'): LogRecord => ({
  topic: TOPIC,
  lane: LANE,
  offset,
  key: 'r',
  value: '{}',
  time: 0,
  headers: encodeHeaders({ id: 'x', type: 'RunAccepted', source, subject: 'r', time: 0, tenant: 'default', lane: LANE, seq: offset + 1, prev: 0, version, hash: `h${version}` }),
});
const foreign = (offset: number): LogRecord => ({ ...event(offset, 9, 'someone'), headers: { ce_type: 'RunFinished' } });

/** A lane that holds these records, before a journal that holds the versions up to one. */
function check(records: readonly LogRecord[], held: number, rebuilding = false) {
  const lacks = (topic: string, heads: readonly StreamHead[]) => Promise.resolve(heads.filter(({ version, hash }) => topic !== TOPIC || version > held || hash !== `h${version}`));
  return journalBehind(
    {
      service: 'orchestrator',
      name: TOPIC,
      last: () => Promise.resolve(records.slice(-1)),
      read: (_, from, to) => Promise.resolve(records.filter(({ offset }) => offset >= from && offset < to)),
    },
    { rebuilding: () => Promise.resolve(rebuilding), lacks },
  );
}

describe('a journal and its own topic', () => {
  it('is in order when it holds the last event, whatever else it holds', async () => {
    expect(await check([], 0)).toBeNull();
    expect(await check([event(0, 1), event(1, 2)], 2)).toBeNull();
    expect(await check([event(0, 1), event(1, 2)], 7)).toBeNull();
  });

  it('is in order after a rebuild, under another name than the one that published', async () => {
    expect(await check([event(0, 1, 'holdfast/orchestrator/life-0')], 1)).toBeNull();
  });

  it('is behind when the last event is not in it, and says what to run', async () => {
    expect(await check([event(0, 1), event(1, 2)], 1)).toMatch(/version 2 of stream r.*holdfast rebuild orchestrator/);
    expect(await check([event(0, 1)], 0)).toMatch(/new, or an older copy/);
  });

  it('is judged by the last event of a service, however many others wrote behind it', async () => {
    const rest = Array.from({ length: 200 }, (_, i) => foreign(i + 2));
    expect(await check([event(0, 1), event(1, 2), ...rest], 2)).toBeNull();
    expect(await check([event(0, 1), event(1, 2), ...rest], 1)).toMatch(/version 2/);
    expect(await check([foreign(0)], 0)).toBeNull();
  });

  it('is not used while a rebuild of it is unfinished', async () => {
    expect(await check([event(0, 1)], 1, true)).toMatch(/begun and not finished.*holdfast rebuild orchestrator/);
  });
});
