import { describe, expect, it } from '@jest/globals';
import { Digest, OperationKey, Step, type Json } from '@holdfast/protocol';
import { evolveCase, type CaseEvent, type CaseView } from '../src/domain/case-view.js';
import { evolveEffect, type EffectEvent, type EffectView } from '../src/domain/effect-view.js';
import { countsAs, figuresOf, percentile, pointOf, type Counted, type Counts } from '../src/domain/figures.js';
import { FIGURES } from '../src/domain/figure-list.js';
import { samplesOf } from '../src/metrics.js';
import { evolveRun, statusOf, type RunEvent, type RunView } from '../src/domain/run-view.js';
import { evolveSteps, stepsOf, type StepView } from '../src/domain/step-view.js';

const step = Step.parse('1');
const key = OperationKey.parse('a'.repeat(64));
const digest = Digest.parse('b'.repeat(64));
const tool = { name: 'charge', version: '1' };
const lease = (fence: number) => ({ fence, worker: 'w', taken: 0 });

const accepted = (over: object = {}): RunEvent => ({ type: 'RunAccepted', data: { tenant: 'default', agent: { name: 'desk', version: '1' }, pool: 'default', input: {}, inputDigest: digest, ...over } }) as unknown as RunEvent;
const ofRun = (type: string, data: object): RunEvent => ({ type, data }) as unknown as RunEvent;
const requested = ofRun('EffectRequested', { call: { step, tool, effect: 'irreversible', keyScope: 'run', args: { order: 'A' }, key, digest, digestVersion: 1 }, fire: 'granted', fence: 1 });
const blocked = ofRun('RunBlocked', { step, attempt: 1, cause: 'deadline', message: 'nobody knows', since: 30 });
const settled = ofRun('EffectSettled', { step, attempt: 1, outcome: { status: 'succeeded', result: { value: 1 }, evidence: { kind: 'receipt' } } });
const finished = ofRun('RunFinished', { ending: { status: 'completed', output: { value: 1 } }, effects: [], steps: { fresh: 1, replayed: 0 } });

const runOf = (...events: RunEvent[]): RunView | null => events.reduce<RunView | null>((run, event, index) => evolveRun(run, event, { at: index, version: index + 1, hash: null }), null);
const status = (...events: RunEvent[]) => {
  const run = runOf(...events);
  return run === null ? null : statusOf(run);
};

describe('a run’s page', () => {
  it('says how it stands', () => {
    expect(status(accepted())).toBe('queued');
    expect(status(accepted({ lease: lease(1) }))).toBe('running');
    expect(status(accepted({ agent: null }))).toBe('running');
    expect(status(accepted(), ofRun('LeaseGranted', { lease: lease(1), because: 'worker_arrived' }))).toBe('running');
    expect(status(accepted({ lease: lease(1) }), requested, blocked)).toBe('blocked');
    expect(status(accepted({ lease: lease(1) }), requested, blocked, settled)).toBe('running');
    expect(status(accepted({ lease: lease(1) }), requested, blocked, ofRun('StepReleased', { step, attempt: 1, because: 'proved' }))).toBe('running');
    expect(status(accepted({ lease: lease(1) }), ofRun('RunQuarantined', { reason: 'poison', message: 'no' }))).toBe('quarantined');
    expect(status(accepted({ lease: lease(1) }), requested, settled, finished)).toBe('completed');
  });

  it('hears of an end in what a worker reports with its next intent', () => {
    const next = ofRun('StepsReported', { settles: [{ step, attempt: 1, outcome: { status: 'succeeded', result: { value: 1 }, evidence: { kind: 'receipt' } } }] });
    expect(status(accepted({ lease: lease(1) }), requested, blocked, next)).toBe('running');
  });

  it('is held still until all that hold it have let go', () => {
    const by = { by: { name: 'kate', roles: [] }, reason: 'r', command: 'c', at: 1 };
    const both = [accepted({ lease: lease(1) }), ofRun('RunPaused', by), ofRun('RunPaused', { ...by, brake: 'tenant:acme' })];
    expect(status(...both, ofRun('RunUnpaused', { ...by, brake: 'tenant:acme' }))).toBe('paused');
    expect(status(...both, ofRun('RunUnpaused', by))).toBe('paused');
    expect(status(...both, ofRun('RunUnpaused', by), ofRun('RunUnpaused', { ...by, brake: 'tenant:acme' }))).toBe('running');
    const effect = evolveEffect(null, { type: 'EffectPaused', data: { step, key, attempt: 1, by: 'run', because: 'kate' } }, 5);
    expect([effect.step, effect.updatedAt]).toEqual([step, 5]);
  });

  it('is stuck until something brings it further', () => {
    const stuck = [accepted({ lease: lease(1) }), ofRun('RunStuck', { since: 1, on: 'nothing', steps: [] })];
    expect([status(...stuck), status(...stuck, ofRun('LeaseGranted', { lease: lease(1), because: 'worker_arrived' })), status(...stuck, requested)]).toEqual(['stuck', 'stuck', 'running']);
  });

  it('counts resumes and refusals, and names its version', () => {
    const resumed = ofRun('RunResumed', { lease: lease(2), because: 'worker_changed', replayed: 1, refired: [] });
    const run = runOf(accepted({ lease: lease(1) }), resumed, ofRun('IntentRejected', { intent: 'CallTool', reason: 'stale_fence', message: '', token: 't' }));
    expect(run).toMatchObject({ resumes: 1, rejected: 1, fence: 2, version: 3 });
  });

  it('is none for a run that never was', () => {
    expect(runOf(ofRun('IntentRejected', { intent: 'CallTool', reason: 'run_unknown', message: '', token: 't' }))).toBeNull();
    expect(runOf(ofRun('StartRefused', { agent: null, reason: 'queue_full', message: '', retryAt: 1 }))).toBeNull();
    expect(runOf(ofRun('StartRefused', { agent: null, reason: 'queue_full', message: '', retryAt: 1 }), accepted())).toMatchObject({ version: 2, rejected: 0 });
  });
});

describe('a run’s steps', () => {
  const stepsAfter = (...events: RunEvent[]): ReadonlyMap<string, StepView> => {
    const steps = new Map<Step, StepView>();
    events.forEach((event, at) => {
      for (const changed of evolveSteps(new Map([...steps].filter(([name]) => stepsOf(event).includes(name))), event, at)) steps.set(changed.step, changed);
    });
    return steps;
  };

  it('end as they are told to have ended, and an end that is known stays', () => {
    const unknown = ofRun('RunBlocked', { step, attempt: 1, cause: 'deadline', message: 'late' });
    expect(stepsAfter(requested).get('1')).toMatchObject({ outcome: null, askedAt: 0, endedAt: null });
    expect(stepsAfter(requested, unknown).get('1')).toMatchObject({ outcome: { status: 'unknown' }, endedAt: null });
    expect(stepsAfter(requested, unknown, settled).get('1')).toMatchObject({ outcome: { status: 'succeeded' }, endedAt: 2 });
    expect(stepsAfter(requested, settled, unknown).get('1')).toMatchObject({ outcome: { status: 'succeeded' }, endedAt: 1 });
  });

  it('of a forked run are its origin’s up to where it begins, and are not its own', () => {
    const call = { step, tool, effect: 'irreversible', keyScope: 'run', args: {}, key, digest, digestVersion: 1 };
    const copies = ofRun('StepsCopied', { origin: { run: 'first', from: '4' }, observed: [], steps: [
      { kind: 'call', call, fire: 'granted', attempt: 2, outcome: { status: 'succeeded', result: { value: 1 }, evidence: { kind: 'receipt' } } },
      { kind: 'record', step: '2', as: 'model', name: 'ask', result: { value: 1 } },
      { kind: 'wait', step: '3', wait: { kind: 'signal', name: 'go' } },
    ] });
    const steps = stepsAfter(copies);
    expect([...steps.values()].map((of) => [of.step, of.kind, of.fence, of.endedAt])).toEqual([['1', 'call', 0, 0], ['2', 'record', 0, 0], ['3', 'wait', 0, null]]);
    expect(runOf(accepted(), copies)?.origin).toEqual({ run: 'first', from: '4' });
  });

  it('tell tries at recorded work from work that is done', () => {
    const tried = ofRun('StepRetryScheduled', { step, kind: 'model', name: 'ask', attempt: 1, failure: { class: 'transient', message: 'busy' }, retryAt: 9 });
    const recorded = ofRun('StepRecorded', { step, kind: 'model', name: 'ask', result: { value: 1 } });
    expect(stepsAfter(tried).get('1')).toMatchObject({ kind: 'try', attempt: 1, retryAt: 9, endedAt: null });
    expect(stepsAfter(tried, recorded).get('1')).toMatchObject({ kind: 'record', askedAt: 0, endedAt: 1 });
  });
});

const effectOf = (...events: [string, object][]): EffectView | null => events.reduce<EffectView | null>((effect, [type, data], at) => evolveEffect(effect, { type, data: { step, key, ...data } } as unknown as EffectEvent, at), null);
const dispatched = (attempt: number): [string, object] => ['EffectDispatched', { tool, effect: 'irreversible', attempt, because: 'first', notAfter: 99, ...(attempt === 1 ? { args: { order: 'A' } } : {}) }];

describe('an effect’s page', () => {
  it('shows each attempt with its end', () => {
    const failure = { class: 'transient', message: 'busy' };
    const effect = effectOf(dispatched(1), ['EffectRetryScheduled', { attempt: 1, failure, because: 'retry', retryAt: 50 }], dispatched(2), ['EffectSucceeded', { attempt: 2, result: { value: 1 }, evidence: { kind: 'receipt' } }]);
    expect(effect).toMatchObject({ status: 'succeeded', args: { order: 'A' }, attempts: [{ attempt: 1, end: 'failed', message: 'busy' }, { attempt: 2, end: 'succeeded' }] });
  });

  it('raises what must not be', () => {
    expect(effectOf(dispatched(1), ['DuplicateEffectDetected', { attempts: [1, 2], message: 'twice' }])).toMatchObject({ alarm: 'DuplicateEffectDetected' });
  });

  it('knows a local effect from its end', () => {
    expect(effectOf(['EffectSucceeded', { attempt: 1, result: { value: 1 }, evidence: { kind: 'host' }, local: { tool, effect: 'pure', digest } }])).toMatchObject({ tool, effect: 'pure', status: 'succeeded' });
  });
});

const opened = (attempt: number): object => ({ attempt, of: 1, tool, effect: 'irreversible', args: {}, fence: 1, cause: 'deadline', message: 'late', since: 0, owner: 'desk', readingFrom: 9, nextLookAt: 5, because: 'b' });
const caseOf = (...events: [string, object][]): CaseView | null => events.reduce<CaseView | null>((of, [type, data], at) => evolveCase(of, { type, data: { step, key, ...data } } as unknown as CaseEvent, at), null);

describe('a case’s page', () => {
  it('goes from open to settled, by whom', () => {
    const settledBy: [string, object] = ['CaseSettled', { attempt: 1, verdict: { status: 'not_applied' }, by: 'person', evidence: { kind: 'person' }, because: 'b', readAt: null, sealing: false, forced: true, person: { name: 'olga', roles: [] } }];
    expect(caseOf(['CaseOpened', opened(1)])).toMatchObject({ status: 'open', owner: 'desk', nextLookAt: 5 });
    expect(caseOf(['CaseOpened', opened(1)], ['CaseAssigned', { attempt: 1, owner: 'olga' }], settledBy)).toMatchObject({ status: 'settled', owner: 'olga', person: 'olga', forced: true, settledAt: 2 });
  });

  it('hears nothing of another attempt', () => {
    expect(caseOf(['CaseOpened', opened(2)], ['CaseAssigned', { attempt: 1, owner: 'olga' }])).toMatchObject({ attempt: 2, owner: 'desk' });
  });
});

const some: Counts = {
  counted: new Map<Counted, number>([['EffectSucceeded', 10], ['DuplicateEffectDetected', 1], ['stale', 2], ['completed', 3], ['verified', 1], ['compensation_failed', 1], ['CompensationEscalated', 2]]),
  recoveries: [{ at: 10, ms: 30, wentOn: true }, { at: 20, ms: 10, wentOn: true }, { at: 60, ms: 20, wentOn: true }, { at: 70, ms: 40, wentOn: false }],
  gaps: [{ at: 15, missing: 2 }, { at: 80, missing: 1 }],
  unknowns: [{ since: 10, until: null }, { since: 20, until: 40 }, { since: 90, until: null }],
  openUnknownSince: [10, 90],
  plans: [{ since: 30, until: null }, { since: 95, until: null }, { since: 5, until: 45 }],
};

describe('figures', () => {
  it.each<[string, Json, string | null]>([
    ['RunFinished', { ending: { status: 'completed', verified: true } }, 'verified'],
    ['RunFinished', { ending: { status: 'completed' } }, 'completed'],
    ['RunFinished', { ending: { status: 'failed' } }, 'ended_otherwise'],
    ['IntentRejected', { reason: 'stale_fence' }, 'stale'],
    ['IntentRejected', { reason: 'invalid' }, null],
    ['RunResumed', {}, 'RunResumed'],
    ['EffectHeld', {}, null],
    ['PlanOpened', {}, 'PlanOpened'],
    ['CompensationSettled', { standing: { standing: 'failed' } }, 'compensation_failed'],
    ['CompensationSettled', { standing: { standing: 'compensated' } }, null],
  ])('%s %j counts as %s', (type, data, counted) => {
    expect(countsAs(type, data)).toBe(counted);
  });

  it('are what they say, and nothing where there is nothing', () => {
    const none: Counts = { counted: new Map(), recoveries: [], gaps: [], unknowns: [], openUnknownSince: [], plans: [] };
    const nothing = { open: 0, oldestMs: null, p50Ms: null };
    expect(figuresOf(none, 100)).toEqual({ recoveryMs: { count: 0, p50: null, p95: null, max: null }, acceptedStateLoss: 0, duplicateEffectRate: null, unknowns: nothing, successfulResumes: null, compensationBacklog: { ...nothing, failed: 0, escalated: 0 }, staleRejections: 0, verifiedOutcomes: null });
    expect(figuresOf(some, 100)).toEqual({
      recoveryMs: { count: 4, p50: 20, p95: 40, max: 40 },
      acceptedStateLoss: 3,
      duplicateEffectRate: 0.1,
      unknowns: { open: 2, oldestMs: 90, p50Ms: 10 },
      successfulResumes: 0.75,
      compensationBacklog: { open: 2, oldestMs: 70, p50Ms: 5, failed: 1, escalated: 2 },
      staleRejections: 2,
      verifiedOutcomes: 0.25,
    });
    expect(percentile([3, 1, 2], 0.5)).toBe(2);
  });

  it('have a course: of what happened in a bucket, and of what was open at its end', () => {
    const counted = new Map<Counted, number>([['EffectSucceeded', 4], ['DuplicateEffectDetected', 1], ['completed', 1], ['verified', 1], ['stale', 2], ['compensation_failed', 1]]);
    expect(pointOf({ from: 0, to: 50, counted }, some)).toMatchObject({
      ...{ recoveryP50Ms: 10, acceptedStateLoss: 2, duplicateEffectRate: 0.25, unknownsOpen: 1, unknownsOldestMs: 40, successfulResumes: 1 },
      ...{ compensationsOpen: 1, compensationsOldestMs: 20, compensationsFailed: 1, staleRejections: 2, verifiedOutcomes: 0.5, completed: 2 },
    });
    expect(pointOf({ from: 50, to: 100, counted: new Map() }, some)).toMatchObject({ recoveryP50Ms: 20, acceptedStateLoss: 1, duplicateEffectRate: null, unknownsOpen: 2, unknownsOldestMs: 90, successfulResumes: 0.5, compensationsOpen: 2, compensationsOldestMs: 70, verifiedOutcomes: null });
    expect(pointOf({ from: 0, to: 30, counted: new Map() }, some)).toMatchObject({ unknownsOpen: 2, compensationsOpen: 1 });
  });

  it('are each described, with the name that they have in an answer, and each has a course', () => {
    expect(FIGURES.map(({ name }) => name).sort()).toEqual(Object.keys(figuresOf(some, 100)).sort());
    const course = Object.keys(pointOf({ from: 0, to: 1, counted: new Map() }, some));
    for (const { series } of FIGURES) expect(course).toEqual(expect.arrayContaining([...series]));
    const samples = samplesOf(figuresOf(some, 100), 1);
    expect(new Set(samples.map(([name]) => name))).toEqual(new Set(FIGURES.flatMap(({ metrics }) => metrics.map(({ name }) => name))));
    expect(samples.find(([name]) => name === 'holdfast_compensation_backlog_oldest_seconds')).toEqual(['holdfast_compensation_backlog_oldest_seconds', 0.07]);
  });
});
