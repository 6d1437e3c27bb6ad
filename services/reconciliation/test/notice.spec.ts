import { describe, expect, test } from '@jest/globals';
import { CaseEscalated, CaseReminded, encodeHeaders, type Message } from '@holdfast/protocol';
import type { LogRecord } from '@holdfast/runtime';
import { noticeOf } from '../src/notify/notice.js';
import { now, opened, ref } from './kit.js';

const recordOf = (message: Message, over: Partial<LogRecord> = {}): LogRecord => ({
  topic: 'reconciliation.events',
  lane: 0,
  offset: 7,
  key: 'run/7',
  headers: encodeHeaders({ id: 'e-1', type: message.type, source: 'holdfast/reconciliation/1', subject: 'run/7', time: now, tenant: 'acme', lane: 0, seq: 3, prev: 2 }),
  value: JSON.stringify(message.data),
  time: now + 5,
  ...over,
});
const of = { case: 'run/7/3/1', tenant: 'acme', run: 'run/7', step: '3', attempt: 1 };
const escalated = CaseEscalated({ ...ref, to: 'boss', reason: 'too_old', message: 'open since long' });

describe('people are told', () => {
  test('of an escalation: which case, to whom, and why, under the event’s own id', () => {
    expect(noticeOf(recordOf(escalated))).toEqual({ id: 'e-1', type: 'case.escalated', timestamp: '1970-01-01T00:01:40.000Z', data: { ...of, to: 'boss', reason: 'too_old', message: 'open since long' } });
  });

  test('of a reminder: how long nobody has settled it, and what shows it', () => {
    const reminder = CaseReminded({ ...ref, owner: null, openForMs: 5_400_000, remindAt: null });
    expect(noticeOf(recordOf(reminder))).toEqual({ id: 'e-1', type: 'case.reminded', timestamp: '1970-01-01T00:01:40.000Z', data: { ...of, to: null, reason: 'reminder', message: 'nobody has settled it for 1.5 h: holdfast cases show run/7/3/1' } });
  });

  test('of the same event read again, under the same id', () => {
    expect(noticeOf(recordOf(escalated, { offset: 9 }))?.id).toBe('e-1');
  });

  test('of nothing else, and of nothing that can’t be read', () => {
    expect(noticeOf(recordOf(opened()))).toBeNull();
    expect(noticeOf(recordOf(escalated, { headers: {} }))).toBeNull();
    expect(noticeOf(recordOf(escalated, { value: '{' }))).toBeNull();
    expect(noticeOf(recordOf(escalated, { value: null }))).toBeNull();
    expect(noticeOf(recordOf({ type: 'CaseEscalated', data: { step: '3' } }))).toBeNull();
  });
});
