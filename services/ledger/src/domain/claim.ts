import { Digest, Evidence, RunId, Step, Stored } from '@holdfast/protocol';
import { z } from 'zod';

/**
 * A row that spans lanes: who holds an operation key with scope `target`. Read and written under
 * its lock, so that of two runs on two instances that ask at once one fires.
 */
export const ClaimRow = z.discriminatedUnion('status', [
  z.object({ status: z.literal('claimed'), run: RunId, step: Step, digest: Digest }),
  z.object({ status: z.literal('succeeded'), run: RunId, step: Step, digest: Digest, result: Stored, evidence: Evidence }),
  /** The effect did not happen: the next who asks may fire. */
  z.object({ status: z.literal('free') }),
]);
export type ClaimRow = z.infer<typeof ClaimRow>;

/** How a key stands towards one run's step. */
export type Claim =
  | { readonly held: 'by_nobody' }
  | { readonly held: 'by_me' }
  | { readonly held: 'by_other'; readonly owner: { readonly run: RunId; readonly step: Step }; readonly digest: Digest; readonly outcome: { readonly result: Stored; readonly evidence: Evidence } | null };

/** Keys of scope `run` are nobody else's by their making. */
export const ownKey: Claim = { held: 'by_me' };

export function claimOf(row: ClaimRow | null, run: RunId, step: Step): Claim {
  if (row === null || row.status === 'free') return { held: 'by_nobody' };
  if (row.run === run && row.step === step) return { held: 'by_me' };
  return {
    held: 'by_other',
    owner: { run: row.run, step: row.step },
    digest: row.digest,
    outcome: row.status === 'succeeded' ? { result: row.result, evidence: row.evidence } : null,
  };
}
