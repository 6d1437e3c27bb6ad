import { describe, expect, it } from '@jest/globals';
import type { Approval, Case, Effect, RunEvent, RunSummary, Step } from '../src/api/client.js';
import { approvalAdvice, caseAdvice } from '../src/model/advice.js';
import { figureViews, linesIn, pointOf, type FiguresRead } from '../src/model/board.js';
import { noFilter, passes, touched, withRuns } from '../src/model/live-runs.js';
import { timelineOf } from '../src/model/timeline.js';

const run = (id: string, over: Partial<RunSummary> = {}): RunSummary => ({ id, status: 'running', agent: { name: 'desk', version: '1' }, goal: null, principal: null, acceptedAt: '2026-01-01T00:00:00.000Z', updatedAt: '2026-01-01T00:00:00.000Z', endedAt: null, deadline: null, resumes: 0, unknown: 0, ...over });
const event = (type: string, of: string, data: object = {}, time = '2026-01-01T00:00:01.000Z', topic = 'run.events'): RunEvent => ({ id: `${type}-${of}`, topic, type, run: of, version: 1, time, data });
const ids = (pages: readonly { items: RunSummary[] }[]) => pages.map(({ items }) => items.map(({ id, status }) => `${id} ${status}`));

describe('the list of runs, as events come', () => {
  it('asks anew for what it shows and for what has begun, once each, and for nothing else', () => {
    const events = [event('RunFinished', 'a'), event('EffectSettled', 'a'), event('RunFinished', 'far'), event('RunAccepted', 'new'), event('LeaseGranted', 'new'), event('EffectDispatched', 'a', {}, undefined, 'effect.events')];
    expect(touched(events, new Set(['a', 'b']))).toEqual({ changed: ['a'], begun: ['new'] });
  });

  it('changes a run in place, puts a new one first, and drops what a filter shuts out', () => {
    const pages = [{ items: [run('b'), run('a')], next: 'c1' }, { items: [run('c')], next: null }];
    const done = run('a', { status: 'completed' });
    expect(ids(withRuns(pages, [done, run('new', { acceptedAt: '2026-01-02T00:00:00.000Z' })], noFilter))).toEqual([['new running', 'b running', 'a completed'], ['c running']]);
    expect(ids(withRuns(pages, [done], { ...noFilter, status: ['running'] }))).toEqual([['b running'], ['c running']]);
    expect(ids(withRuns(pages, [run('x')], { ...noFilter, id: 'b' }))[0]).toEqual(['b running']);
    expect(withRuns(pages, [], noFilter)).toEqual(pages);
  });

  it('knows what a filter means', () => {
    expect([passes(run('a-1'), noFilter), passes(run('a-1'), { status: ['failed'], agent: '', id: '' }), passes(run('a-1'), { status: [], agent: 'desk', id: 'a-' }), passes(run('a-1'), { status: [], agent: 'other', id: '' }), passes(run('a-1', { agent: null }), { status: [], agent: 'desk', id: '' })]).toEqual([true, false, true, false, false]);
  });
});

const step = (name: string, askedAt: string): Step => ({ step: name, kind: 'call', name: 'charge', askedAt, endedAt: null, fence: 1, replayed: false, call: null, record: null, failed: null, wait: null });

describe('a run’s story', () => {
  it('is told in the order of time, recoveries among it, with effects at their steps', () => {
    const events = [
      event('RunAccepted', 'r', {}, '2026-01-01T00:00:00.000Z'),
      event('RunResumed', 'r', { lease: { worker: 'w2', fence: 2 }, replayed: 3, refired: ['2'] }, '2026-01-01T00:00:02.000Z'),
      event('StepsReported', 'r', {}, '2026-01-01T00:00:03.000Z'),
      event('RunCancelRequested', 'r', { by: { name: 'olga', roles: [] }, reason: 'enough' }, '2026-01-01T00:00:04.000Z'),
      event('RunFinished', 'r', { ending: { status: 'failed' } }, '2026-01-01T00:00:05.000Z'),
    ];
    const effects = [{ step: '2', status: 'unknown' }] as unknown as Effect[];
    const told = timelineOf([step('1', '2026-01-01T00:00:01.000Z'), step('2', '2026-01-01T00:00:02.000Z')], effects, events);
    expect(told.map((entry) => (entry.kind === 'step' ? `step ${entry.step.step} ${entry.effect?.status ?? '-'}` : [entry.title, entry.who, entry.detail, entry.tone]))).toEqual([
      ['Run accepted', null, null, 'quiet'],
      'step 1 -',
      'step 2 unknown',
      ['Recovered: another worker took over', null, 'w2, 3 steps replayed, 1 tried again', 'warn'],
      ['Cancellation asked for', 'olga', 'enough', 'warn'],
      ['Run ended', null, 'failed', 'warn'],
    ]);
  });
});

const now = Date.parse('2026-01-01T12:00:00Z');
const of = (over: object): Case => ({ effect: 'irreversible', escalated: [], readingFrom: '2026-01-01T11:00:00Z', nextLookAt: null, lastAnswer: null, probes: 0, ...over }) as unknown as Case;

describe('advice', () => {
  it('warns of what a wrong word does', () => {
    expect(caseAdvice(of({}), now)).toEqual([expect.stringContaining('it happens twice'), expect.stringContaining('somebody has to look there')]);
    expect(caseAdvice(of({ effect: 'idempotent', lastAnswer: { status: 'not_applied' }, probes: 2 }), now)).toEqual([expect.stringContaining('safe'), 'The probe found nothing at the target.']);
    expect(caseAdvice(of({ readingFrom: '2026-01-01T12:05:00Z', nextLookAt: '2026-01-01T12:01:00Z' }), now)).toEqual(expect.arrayContaining([expect.stringContaining('in 5 min'), 'Holdfast looks again in 1 min.']));
    expect(caseAdvice(of({ readingFrom: null, escalated: ['contradictory'] }), now)).toEqual([expect.stringContaining('contradict'), expect.any(String), expect.stringContaining('I know better'), expect.any(String)]);
  });

  it('says who must not decide, and until when', () => {
    const asked = { fourEyes: true, deadline: '2026-01-01T13:00:00Z', reminded: 2, escalatedTo: 'the boss' } as unknown as Approval;
    expect(approvalAdvice(asked, 'ann', 'ann', now)[0]).toContain('somebody else');
    expect(approvalAdvice(asked, 'ann', 'bob', now)).toEqual([expect.stringContaining('Two people'), expect.stringContaining('1 h'), 'Somebody was reminded 2 times.', expect.stringContaining('the boss'), expect.stringContaining('exactly the call')]);
    expect(approvalAdvice({ ...asked, fourEyes: false, deadline: null, reminded: 0, escalatedTo: null }, null, 'bob', now)).toHaveLength(1);
  });
});

describe('the board', () => {
  const figures = { recoveryMs: { count: 0, p50: null, p95: null, max: null }, acceptedStateLoss: 0, duplicateEffectRate: null, unknowns: { open: 0, oldestMs: null, p50Ms: null }, successfulResumes: null, staleRejections: 0, verifiedOutcomes: null } as FiguresRead['figures'];
  const view = (over: object, id: string) => figureViews({ figures: { ...figures, ...over } }).find((each) => each.id === id);

  it('has eight figures, all fine where nothing happened', () => {
    const views = figureViews({ figures });
    expect([views.length, views.every(({ fine }) => fine)]).toEqual([8, true]);
  });

  it('plots the figure’s own course where the gateway tells it, in one unit, and counts otherwise', () => {
    const lines = [{ of: 'recoveryP50Ms', name: 'half' }, { of: 'resumed', name: 'recoveries' }];
    expect([linesIn([{ at: '', recoveryP50Ms: 1, resumed: 1 }], lines), linesIn([{ at: '', resumed: 1 }], lines), linesIn([], lines)].map((found) => found.map(({ of: line }) => line))).toEqual([['recoveryP50Ms'], ['resumed'], []]);
    const bucket = { recoveryP50Ms: 1500, verifiedOutcomes: 0.5, resumed: 3, unknownsOpen: null };
    expect(['recoveryP50Ms', 'verifiedOutcomes', 'resumed', 'unknownsOpen', 'nothing'].map((line) => pointOf(bucket, line))).toEqual([1.5, 50, 3, null, null]);
  });

  it.each([
    ['loss', { acceptedStateLoss: 1 }, '1', false],
    ['duplicates', { duplicateEffectRate: 0.5 }, '50 %', false],
    ['unknowns', { unknowns: { open: 2, oldestMs: 60_000, p50Ms: 1 } }, '2', false],
    ['resumes', { successfulResumes: 1 }, '100 %', true],
    ['recovery', { recoveryMs: { count: 2, p50: 10, p95: 1500, max: 2000 } }, '1 s', true],
    ['backlog', { compensationBacklog: null }, '–', true],
    ['backlog', { compensationBacklog: { open: 3, oldestMs: 5000 } }, '3', false],
    ['backlog', { compensationBacklog: 2 }, '2', false],
  ])('%s of %j', (id, over, value, fine) => expect(view(over, id)).toMatchObject({ value, fine }));
});
