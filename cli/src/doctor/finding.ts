/** `weak`: it works, and something is to be looked at; `wrong`: something does not work or would be lost. */
export type FindingState = 'ok' | 'weak' | 'wrong';

/** What was looked at, how it is, and what mends it. */
export interface Finding {
  readonly area: 'machine' | 'stack';
  readonly what: string;
  readonly state: FindingState;
  readonly says: string;
  readonly mend: string | null;
}

type Said = Pick<Finding, 'what' | 'says'>;
const found = (area: Finding['area'], state: FindingState, { what, says }: Said, mend: string | null): Finding => ({ area, what, state, says, mend });

/** Findings of one area. */
export const findingsOf = (area: Finding['area']) => ({
  ok: (what: string, says: string): Finding => found(area, 'ok', { what, says }, null),
  weak: (what: string, says: string, mend: string): Finding => found(area, 'weak', { what, says }, mend),
  wrong: (what: string, says: string, mend: string): Finding => found(area, 'wrong', { what, says }, mend),
});

/** Our own sentences are "what is wrong: what to do". */
export function fromSentence(area: Finding['area'], what: string, sentence: string): Finding {
  const at = sentence.indexOf(': ');
  return findingsOf(area).wrong(what, at < 0 ? sentence : sentence.slice(0, at), at < 0 ? 'see docs/how-to/deploy.md' : sentence.slice(at + 2));
}

/** A look that fails is a finding itself. */
export async function looked(area: Finding['area'], what: string, mend: string, look: () => Promise<readonly Finding[]>): Promise<readonly Finding[]> {
  try {
    return await look();
  } catch (error) {
    return [findingsOf(area).wrong(what, reasonOf(error), mend)];
  }
}

/** An AggregateError of a refused connection has no message of its own. */
const reasonOf = (error: unknown): string => {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(reasonOf).join('; ');
  return error instanceof Error ? error.message : String(error);
};
