import { describe, expect, test } from '@jest/globals';
import { parseTraceparent, spanOf, traceOf, traceparentOf } from '../src/index.js';

describe('a run’s trace', () => {
  test('follows from its id, for ever: these are written in traces that exist', () => {
    expect(traceOf('ticket-1001')).toBe('973c0aa1c27e012e594dda442e2692d8');
    expect(spanOf('ticket-1001')).toBe('87cc1560fa8d4842');
    expect(spanOf('ticket-1001', 'attempt', '3.1', 2)).toBe('773852df4cfd0c0d');
  });

  test('has a span for each part, and none twice', () => {
    const spans = [spanOf('r'), spanOf('s'), spanOf('r', 'step', '1'), spanOf('r', 'step', '11'), spanOf('r', 'attempt', '1', 1), spanOf('r', 'attempt', '1', '1')];
    expect(new Set(spans).size).toBe(spans.length);
  });

  test('is named in the W3C form, and read from it', () => {
    const text = traceparentOf(traceOf('r'), spanOf('r'));
    expect(text).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    expect(parseTraceparent(text)).toEqual({ trace: traceOf('r'), span: spanOf('r') });
  });

  test.each([undefined, '', 'nonsense', `00-${'0'.repeat(32)}-${'1'.repeat(16)}-01`, `00-${'1'.repeat(32)}-${'0'.repeat(16)}-01`, `00-${'g'.repeat(32)}-${'1'.repeat(16)}-01`])('%j names nothing', (text) => {
    expect(parseTraceparent(text)).toBeNull();
  });
});
