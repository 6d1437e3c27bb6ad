import { expect, it } from '@jest/globals';
import { DocTable } from '../src/views/doc-table.js';

it('writes a text with a NUL into its column with another character in its place, and exactly into the document: one such text must not stop a lane', async () => {
  const written: unknown[][] = [];
  const tx = {
    query: <T>(_text: string, values: unknown[] = []): Promise<T> => {
      written.push(values);
      return Promise.resolve(JSON.parse('[]') as T);
    },
  };
  const table = await DocTable.load<{ owner: string | null }>(tx, 'view_1.matter', ['run', 'step'], []);
  table.set(['r', '1'], { owner: 'ops\0night' });
  table.set(['r', '2'], { owner: null });
  await table.save({ owner: ['text', ({ owner }) => owner] });
  expect(written).toEqual([[['r', 'r'], ['1', '2'], ['ops\ufffdnight', null], ['{"owner":"ops\\u0000night"}', '{"owner":null}']]]);
});
