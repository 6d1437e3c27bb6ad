import type { SpanMark } from '@holdfast/runtime';
import type { EffectEvent } from './domain/effect.js';

const attempt = ({ step, attempt: n }: { readonly step: string; readonly attempt: number }, mark: SpanMark['mark'], verdict?: string): SpanMark => ({
  ...{ parts: ['attempt', step, n], parent: ['step', step], name: 'attempt', mark },
  attributes: { 'holdfast.step': step, 'holdfast.attempt': n, ...(verdict === undefined ? {} : { 'holdfast.verdict': verdict }) },
  ...(verdict === undefined || verdict === 'succeeded' || verdict === 'rejected' ? {} : { failed: verdict }),
});

/** Each attempt, from its dispatch to the ledger's verdict on it. */
export function marks(event: EffectEvent): readonly SpanMark[] {
  switch (event.type) {
    case 'EffectDispatched':
      return [attempt(event.data, 'begins')];
    case 'EffectSucceeded':
      return [attempt(event.data, 'ends', 'succeeded')];
    case 'EffectRejected':
      return [attempt(event.data, 'ends', 'rejected')];
    case 'EffectFailed':
      return [attempt(event.data, 'ends', 'failed')];
    case 'EffectRetryScheduled':
      return [attempt(event.data, 'ends', 'to_be_retried')];
    case 'EffectOutcomeUnknown':
      return [attempt(event.data, 'ends', 'unknown')];
    default:
      return [];
  }
}
