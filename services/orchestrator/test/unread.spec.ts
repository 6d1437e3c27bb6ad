import { describe, expect, it } from '@jest/globals';
import { ReportSteps } from '@holdfast/protocol';
import type { RunEvent } from '../src/domain/run.js';
import { accepted, asked, call, ended, note, played, run, s } from './kit.js';
import { handlers, inboundOf, stateOf, turnOver } from './turn-kit.js';

const mine = [accepted({ agent: null })];
const held = played([accepted(), asked('1', 'refund')]);

/** What comes of an intent of which this is the value; `data`: what was made of it, where it was JSON as it must be. */
function refused(type: string, value: string | null, { data, reason = 'invalid', events = mine }: { readonly data?: 'parsed'; readonly reason?: string; readonly events?: readonly RunEvent[] } = {}) {
  const { envelope, record } = inboundOf(type, run, null);
  const { turn, recorded, sent, parked } = turnOver(new Map([[run as string, stateOf(...events)]]), { ...record, value });
  handlers.unreadable({ record: { ...record, value }, envelope, reason, message: `${type}: wait.name: Too big`, data: data === undefined ? undefined : JSON.parse(value ?? '') }, turn);
  return { recorded, sent, parked };
}

describe('an intent that can’t be read', () => {
  it.each(['StartWait', 'AbandonWait', 'CallTool', 'CallGroup', 'RecordStep', 'ReportTry', 'ReportDivergence'])('%s names its step, so that whoever waits for its decision gets the refusal', (type) => {
    const { recorded, parked } = refused(type, '{"step":"3.1","wait":{"kind":"signal","name":7}}', { data: 'parsed' });
    expect(parked).toEqual(['invalid']);
    expect(recorded).toEqual([{ type: 'IntentRejected', data: { intent: type, step: '3.1', reason: 'invalid', message: `${type}: wait.name: Too big`, token: 'agent.intents/3/8', offset: 8 } }]);
  });

  it.each([
    ['too large', 'too_large', '{"step":"3","args":"x"}'],
    ['beyond 2^53', 'unsafe_number', '{"step":"3","args":9007199254740993}'],
    ['a __proto__ member', 'proto_member', '{"step":"3","args":{"__proto__":1}}'],
    ['nested too deep', 'too_deep', `{"args":${'['.repeat(5000)}${']'.repeat(5000)},"step":"3"}`],
    ['not to be stored', 'not_storable', '{"step":"3"}'],
  ])('since it is %s names its step all the same', (_, reason, value) => {
    expect(refused('CallTool', value, { reason }).recorded).toMatchObject([{ data: { step: '3' } }]);
  });

  it.each([
    ['no JSON', '{nope'],
    ['no value', null],
    ['no object', '[3]'],
    ['no step', '{"fence":"one"}'],
    ['no cursor as its step', '{"step":"first"}'],
  ])('and has %s names none', (_, value) => {
    const [event] = refused('CallTool', value).recorded;
    expect(event?.data).not.toHaveProperty('step');
    expect(event?.data).not.toHaveProperty('fence');
  });

  it('with the fence of the run’s holder is told to that one', () => {
    const { recorded, sent } = refused('StartWait', '{"step":"2","fence":1,"wait":{}}', { events: held, data: 'parsed' });
    expect(recorded).toMatchObject([{ type: 'IntentRejected', data: { step: '2', fence: 1 } }]);
    expect(sent).toMatchObject([{ type: 'IntentRefused', data: { worker: 'w1', fence: 1, step: '2', intent: 'StartWait', reason: 'invalid' } }]);
  });

  it.each(['DeliverCallback', 'ReportChild', 'SignalRun', 'NotKnown'])('%s is nobody’s own: it names no step, and ends none', (type) => {
    const { recorded, sent } = refused(type, '{"step":"2","fence":1,"settles":[]}', { events: held, data: 'parsed' });
    expect(recorded[0]?.data).not.toHaveProperty('step');
    expect(sent).toMatchObject([{ data: { worker: null } }]);
  });

  it('under an older fence or none is told to nobody who holds the run', () => {
    const again = [...held, ...played([accepted()], note('5', 'x', 1)).slice(1)];
    for (const value of ['{"step":"2","fence":7}', '{"step":"2"}']) expect(refused('StartWait', value, { events: again }).sent).toMatchObject([{ data: { worker: null } }]);
  });

  it('leaves what it reports, where that can be read', () => {
    const local = played([accepted()], call('1', 'reserve', { fire: 'local' }));
    const value = JSON.stringify({ step: 'first', fence: 1, settles: [ended('1')], observed: [s('1')] });
    expect(refused('CallTool', value, { events: local, data: 'parsed' }).recorded).toMatchObject([{ type: 'IntentRejected', data: { settles: [{ step: '1', outcome: { status: 'succeeded' } }], observed: ['1'] } }]);
    // What was not JSON as it must be may say something else than was meant.
    expect(refused('CallTool', value, { events: local, reason: 'unsafe_number' }).recorded[0]?.data).not.toHaveProperty('settles');
    const half = JSON.stringify({ ...ReportSteps({ settles: [ended('1')] }).data, observed: 7 });
    expect(refused('ReportSteps', half, { events: local, data: 'parsed' }).recorded).toMatchObject([{ data: { settles: [{ step: '1' }] } }]);
  });
});
