import { expect, it } from '@jest/globals';
import { digestOf, type Json } from '@holdfast/protocol';
import { planInWords } from '../src/commands/plans.js';
import type { ItemView } from '../src/plans.js';

const effect = (step: string, args: Json, approvers: string[]): ItemView => ({ step, tool: 'flight.book@1', stands: 'waits', why: '', with: 'flight.cancel@2', args, digest: digestOf(args), approvers, escalated: [], answers: null });

it('a plan shows whole what waits for a yes, and what the yes is for', () => {
  const args = { booking: 'b-1', note: `${'as the customer asked '.repeat(20)}\u009b2J`, refundTo: 'account 666' };
  const text = planInWords({ run: 'trip', tenant: 'default', plan: 1, status: 'open', since: '2026-01-01T00:00:00.000Z', causes: ['operator: asked'], effects: [effect('1', { booking: 'b-0' }, []), effect('2', args, ['manager'])] });
  expect(text.split('\n').filter((line) => line.startsWith('args '))).toEqual([`args 2 flight.cancel@2 {"booking":"b-1","note":"${'as the customer asked '.repeat(20)}\\u009b2J","refundTo":"account 666"} --digest ${digestOf(args)}`]);
});
