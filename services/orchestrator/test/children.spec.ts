import { describe, expect, it } from '@jest/globals';
import { ReportChild, RunFinished, RunId, RunJoined } from '@holdfast/protocol';
import { accepted, agent, completed, f, finish, given, holder, asked, grant, release, s, tenant } from './kit.js';
import { handlers, inboundOf, stateOf, turnOver } from './turn-kit.js';

const child = RunId.parse('shared');
const first = { run: RunId.parse('run-1'), step: s('1') };
const second = { run: RunId.parse('run-2'), step: s('4') };
const wanted = (input: unknown = { order: 7 }) => inboundOf('StartRun', child, { agent, input: input as never, parent: second });
const open = accepted({ parent: first });

describe('a child that another run has already', () => {
  it('is joined, once, and tells both how it ended', () => {
    const { turn, recorded, sent } = turnOver(new Map([[child as string, stateOf(open)]]));
    handlers.start(wanted(), turn);
    handlers.start(wanted(), turn);
    expect(recorded).toEqual([RunJoined({ parent: second })]);
    handlers.apply(child, tenant, turn, finish());
    expect(sent.filter(({ type }) => type === 'ReportChild')).toEqual([ReportChild({ step: first.step, child, ending: completed }), ReportChild({ step: second.step, child, ending: completed })]);
  });

  it('but with another input is none of its: it hears so', () => {
    const { turn, recorded, sent } = turnOver(new Map([[child as string, stateOf(open)]]));
    handlers.start(wanted({ order: 8 }), turn);
    expect(recorded.map(({ type }) => type)).toEqual(['IntentRejected']);
    const told = expect.objectContaining({ type: 'ReportChild', data: expect.objectContaining({ step: '4', ending: { status: 'failed', failure: expect.objectContaining({ class: 'concurrency_conflict', notApplied: true }) } }) });
    expect(sent).toContainEqual(told);
    // Its first word may be lost: asked again it is said again.
    handlers.start(wanted({ order: 8 }), turn);
    expect(sent.filter(({ type }) => type === 'ReportChild')).toHaveLength(2);
  });

  it('of another tenant is not told about', () => {
    const { turn, sent } = turnOver(new Map([[child as string, stateOf(accepted({ tenant: 'other' as never }))]]));
    handlers.start(wanted(), turn);
    expect(sent).toEqual([expect.objectContaining({ type: 'ReportChild', data: expect.objectContaining({ ending: expect.objectContaining({ status: 'failed' }) }) })]);
  });

  it('that has ended answers with its end', () => {
    const { turn, recorded, sent } = turnOver(new Map([[child as string, stateOf(open, RunFinished({ ending: completed, effects: [], steps: { fresh: 0, replayed: 0 }, fence: f(1) }))]]));
    handlers.start(wanted(), turn);
    expect([recorded, sent]).toEqual([[], [ReportChild({ step: second.step, child, ending: completed })]]);
  });
});

describe('a worker with newer code', () => {
  const newer = { name: agent.name, version: '2' };
  const holding = (compatibleWith: string[]) => ({ ...holder('w2', 20), agents: [{ ...newer, compatibleWith }] });

  it('gets the runs of versions that it says it carries on, and the resume says so', () => {
    expect(given(accepted()).when(grant(holding(['1'])))).toMatchObject({ events: [{ type: 'RunResumed', data: { revalidated: { agentVersion: 'compatible' } } }] });
  });

  it('gets no others', () => {
    expect(given(accepted()).when(grant(holding([])))).toEqual({ kind: 'ignore', because: 'version_not_hosted' });
    expect(given(accepted()).when(grant({ ...holding(['1']), agents: [{ name: 'other', version: '2', compatibleWith: ['1'] }] }))).toEqual({ kind: 'ignore', because: 'version_not_hosted' });
  });
});

describe('a budget of attempts', () => {
  it('nearing its end, and at it, is said once each, for retries too', () => {
    const events = [accepted({ budgets: { attemptsMax: 5 } }), asked('1', 'lookup', { n: 1 }, 'granted')];
    expect(given(...events).when(release('1', 2)).kind).toBe('ignore');
    const near = given(...events).when(release('1', 3));
    expect(near).toMatchObject({ events: [{ type: 'BudgetNeared', data: { budget: 'attempts', used: 4, max: 5, reached: false } }] });
    if (near.kind !== 'record') throw new Error('nothing was said');
    expect(given(...events, ...near.events).when(release('1', 3)).kind).toBe('ignore');
    expect(given(...events, ...near.events).when(release('1', 4))).toMatchObject({ events: [{ data: { used: 5, reached: true } }] });
    expect(given(...events).when(grant(holder('w9', 90)))).toMatchObject({ events: [{ data: { revalidated: { budgets: 'within' } } }] });
  });
});
