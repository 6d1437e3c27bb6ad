import { describe, expect, it } from '@jest/globals';
import { Digest, Fence, Pool, RunAccepted, RunFinished, Tenant, WorkerId, type Ending } from '@holdfast/protocol';
import { parseHistory } from '@holdfast/sdk';
import { historyFile } from '../src/index.js';

const fence = Fence.parse(1);
const accepted = RunAccepted({ tenant: Tenant.parse('default'), agent: { name: 'a', version: '1' }, pool: Pool.parse('default'), input: null, inputDigest: Digest.parse('c'.repeat(64)), lease: { fence, worker: WorkerId.parse('w1'), taken: 1 } });
const failed: Ending = { status: 'failed', failure: { class: 'policy_denied', message: 'the budget is spent' } };
const finished = { ending: failed, effects: [], steps: { fresh: 0, replayed: 0 } };

describe('an exported history', () => {
  it('says of an ended run whether its code or a service gave the ending', () => {
    expect(historyFile('run-1', [accepted])).not.toHaveProperty('endedBy');
    expect(historyFile('run-1', [accepted, RunFinished({ ...finished, fence })])).toMatchObject({ ending: failed, endedBy: 'code' });
    const byService = historyFile('run-1', [accepted, RunFinished(finished)]);
    expect(byService).toMatchObject({ ending: failed, endedBy: 'service' });
    expect(parseHistory(JSON.parse(JSON.stringify(byService)))).toEqual(byService);
  });
});
