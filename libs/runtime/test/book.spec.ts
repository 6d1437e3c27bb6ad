import { describe, expect, test } from '@jest/globals';
import { encodeHeaders, ToolDeclared, type Pool } from '@holdfast/protocol';
import { openContractBook } from '../src/index.js';
import type { LogRecord } from '../src/index.js';

const declared = (offset: number, pool: string): LogRecord => {
  const { type, data } = ToolDeclared({ name: 'mail.send', version: '1', effect: 'pure', keyScope: 'run', pool: pool as Pool, input: true, output: true, retry: { attemptsMax: 1, initialMs: 1, maxMs: 1, factor: 1 }, timeoutMs: 1, queueMs: 1, settleDelayMs: null, probe: null, owner: null } as unknown as Parameters<typeof ToolDeclared>[0]);
  const key = 'tool:mail.send@1';
  return { topic: 'contracts', lane: 0, offset, key, value: JSON.stringify(data), headers: encodeHeaders({ id: String(offset), type, source: 'worker', subject: key, time: 0, tenant: 'default' }), time: 0 };
};

describe('the contract book', () => {
  test('knows what was declared last, also when that is what was declared before', async () => {
    let tell: (record: LogRecord) => void = () => undefined;
    const book = await openContractBook({
      open: (onRecord) => {
        tell = onRecord;
        return Promise.resolve({ close: () => Promise.resolve(), caughtUp: Promise.resolve() });
      },
      ends: () => Promise.resolve(new Map([[0, 4]])),
    });
    const pools = ['east', 'east', 'west', 'east'].map((pool, offset) => {
      tell(declared(offset, pool));
      return book.tool({ name: 'mail.send', version: '1' } as never)?.pool;
    });
    expect(pools).toEqual(['east', 'east', 'west', 'east']);
    await book.catchUp();
  });
});
