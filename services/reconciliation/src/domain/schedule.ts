import type { EffectClass, Instant, ProbePolicy } from '@holdfast/protocol';
import type { Command, Looking } from './commands.js';

export const DEFAULT_PROBE_TIMEOUT_MS = 10_000;
const PROBE = { initialMs: 1000, factor: 2, maxMs: 300_000 };
/** Looks in a row that bring nothing, before the next means of section 7 is taken: the same key again, or a person. */
export const FRUITLESS_BEFORE_NEXT_STEP = 5;
/** How often the same key is sent again, beyond the attempts of the contract, before a person must look. */
export const REFIRES_MAX = 3;
/** Pause before the same key is sent again where no probe can be asked. Milliseconds. */
const REFIRE_AFTER_MS = 5000;

/** When a case is first looked into; null when nothing but a person or a late result can move it. */
export function firstLookAt({ at, contract, unknown }: Command<'open'>, effect: EffectClass): Instant | null {
  if (contract?.probe) {
    // The target may show the effect at once; whoever seals needs no patience, and what was accepted takes its time.
    return contract.probe.sealing && unknown.cause !== 'accepted' ? at : at + (contract.probe.initialMs ?? PROBE.initialMs);
  }
  return effect === 'idempotent' && unknown.cause !== 'partial_effect' && unknown.last === undefined ? at + REFIRE_AFTER_MS : null;
}

/** The next look after `looks`: back-off with jitter, from the first pause up to the steady one. */
export function nextLookAt({ at, contract, jitter }: Looking, fruitless: number, looks: number): Instant {
  const policy: Partial<ProbePolicy> = contract?.probe ?? {};
  const { initialMs, factor, maxMs } = { initialMs: policy.initialMs ?? PROBE.initialMs, factor: policy.factor ?? PROBE.factor, maxMs: policy.maxMs ?? PROBE.maxMs };
  const pause = Math.min(maxMs, initialMs * factor ** Math.min(60, Math.max(fruitless, looks) - 1));
  return at + Math.round(pause * (0.5 + jitter / 2));
}
