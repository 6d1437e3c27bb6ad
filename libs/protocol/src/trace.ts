import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js';

/**
 * Where a run's trace is found, and what stands in it. All of it follows from what the log holds anyway (the run's id,
 * its steps and attempts), so whoever reads a message can name the span that it belongs to, before and after a crash,
 * and nothing has to be remembered or asked.
 */
const hexOf = (parts: readonly (string | number)[], digits: number): string => bytesToHex(sha256(utf8ToBytes(JSON.stringify(parts)))).slice(0, digits);

/** The id of a run's trace: 32 hex digits. */
export const traceOf = (run: string): string => hexOf(['trace', run], 32);

/** The id of a span in a run's trace: 16 hex digits. Without parts it is that of the run itself. */
export const spanOf = (run: string, ...parts: readonly (string | number)[]): string => hexOf(['span', run, ...parts], 16);

/** A W3C `traceparent` (sampled) that names one span. */
export const traceparentOf = (trace: string, span: string): string => `00-${trace}-${span}-01`;

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}/;

/** What a `traceparent` names; null where the text names nothing. */
export function parseTraceparent(text: string | undefined): { readonly trace: string; readonly span: string } | null {
  const [, trace, span] = TRACEPARENT.exec(text ?? '') ?? [];
  return trace === undefined || span === undefined || /^0+$/.test(trace) || /^0+$/.test(span) ? null : { trace, span };
}
