import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from '@jest/globals';
import { fromSentence } from '../src/doctor/finding.js';
import { node } from '../src/doctor/machine.js';
import { examineStack } from '../src/doctor/stack.js';
import { durationMs } from '../src/duration.js';
import { passes, unknownTypes } from '../src/live.js';
import { replayRun } from '../src/replay-run.js';
import { said } from './said.js';

describe('a length of time', () => {
  it.each([
    ['30m', 1_800_000],
    ['12h', 43_200_000],
    ['90 days', 7_776_000_000],
    ['1.5h', 5_400_000],
    ['0m', 0],
  ])('%j is %s ms', (text, wanted) => {
    expect(durationMs(text, '--since')).toBe(wanted);
  });

  it.each(['', '5', 'soon', '-1h', '1e9h', `${'9'.repeat(99)}h`, '5 lightyears', 'h'])('%j is none, and the sentence says what one is', (text) => {
    expect(() => durationMs(text, '--since')).toThrow(/^--since .* is no length of time: say it with its unit/);
  });

  it('that is too short for what is asked is refused like one that is none', () => {
    expect(() => durationMs('0m', '--older-than', 1)).toThrow(/no length of time/);
  });
});

describe('the exit code', () => {
  it.each([
    [['--help'], 0],
    [['--version'], 0],
    [['runs', 'list', '--help'], 0],
    [['no-such-command'], 2],
    [['runs', 'list', '--no-such-option'], 2],
    [['runs', 'show'], 2],
    [['topics', 'create', '--partitions', 'many'], 2],
    [['tail', '--since', '5'], 2],
  ])('of %j is %s', async (words, code) => {
    expect((await said(...words)).code).toBe(code);
  });
});

describe('a completion', () => {
  it.each(['bash', 'zsh', 'fish', 'powershell'])('has a script for %s, which asks the command for words', async (shell) => {
    const { code, out } = await said('completion', shell);
    expect([code, out.includes('holdfast')]).toEqual([0, true]);
  });

  it.each([
    [['runs', 'sta'], ['start']],
    [['topics', ''], ['create', 'check', 'describe']],
    [['approvals', 'list', '--ro'], ['--role']],
  ])('of %j is %j', async (words, wanted) => {
    const { out } = await said('complete', '--', ...words);
    expect(out.split('\n').map((line) => line.split('\t')[0])).toEqual(expect.arrayContaining(wanted));
  });

  it('for a shell that nobody wrote one for is refused with those that there are', async () => {
    const { code, err } = await said('completion', 'tcsh');
    expect([code, err]).toEqual([2, expect.stringMatching(/zsh, bash, fish/)]);
  });
});

describe('what there is not', () => {
  it.each<[string[], RegExp]>([
    [['runs', 'list', '--phase', 'nonsense'], /no phase "nonsense"; there are queued, running, .*compensation_failed/],
    [['runs', 'list', '--status', 'toString'], /no phase "toString"/],
    [['tail', '--type', 'Nonsense'], /is of the type Nonsense; there are .*RunFinished/],
    [['tail', '--topic', 'effect.events', '--type', 'RunFinished'], /no message on effect.events is of the type RunFinished; there are EffectDispatched/],
    [['keys', 'create', '--name', '', '--role', 'admin'], /^--name: /],
    [['keys', 'create', '--name', '  ', '--role', 'admin'], /^--name: .*blank/],
    [['keys', 'create', '--name', 'x'.repeat(201), '--role', 'admin'], /^--name: /],
    [['keys', 'create', '--name', 'a\nb', '--role', 'admin'], /^--name: .*control character/],
    [['keys', 'create', '--name', 'a', '--role', ''], /^--role: /],
    [['keys', 'create', '--name', 'a', '--role', 'admin', '--tool', 'no tool'], /^--tool: /],
    [['runs', 'start', 'a', '--priority', '500'], /^--priority "500": .*100/],
    [['runs', 'start', 'a', '--priority', ''], /^--priority "": .*number/],
    [['runs', 'start', 'a', '--steps-max', 'many'], /^--steps-max "many": .*number/],
    [['runs', 'start', 'a', '--attempts-max', '0'], /^--attempts-max "0": .*1/],
    [['runs', 'start', 'a', '--tokens-max', '1.5'], /^--tokens-max "1.5": .*int/],
    [['runs', 'start', 'a', '--cost-max', '-1'], /^--cost-max "-1": .*0/],
    [['runs', 'start', 'a', '--wall-time-max', '5'], /^--wall-time-max "5" is no length of time/],
    [['runs', 'start', 'a', '--queue', 'soon'], /^--queue "soon" is no length of time/],
    [['runs', 'start', 'a', '--concurrency-key', ''], /^--concurrency-key "": /],
    [['runs', 'start', 'a', '--on-concurrent', 'wait'], /^--on-concurrent "wait": .*enqueue.*reject.*interrupt.*rollback/],
    [['runs', 'start', 'a', '--success', 'paid', 'x'.repeat(2001)], /^--success "xxx.*2000/],
    [['runs', 'start', 'a', '--pool', 'no pool'], /^--pool "no pool": /],
    [['runs', 'start', 'a', '--on-deadline', 'escalate'], /^--on-deadline escalate: .*to: .*it takes "expire", "compensate"/],
    [['runs', 'start', 'a', '--on-deadline', '{'], /^--on-deadline { is no JSON/],
    [['runs', 'start', 'a', '--deadline', '5'], /^--deadline "5" is no length of time/],
    [['runs', 'start', 'a', '--deadline', '2020-01-01T00:00:00Z'], /^--deadline 2020-01-01T00:00:00Z is over/],
    [['runs', 'start', 'a', '--deadline', '2026-01-31'], /^--deadline "2026-01-31" is no time such as/],
    [['runs', 'approve', 'r', '1', '--expires', '5'], /^--expires "5" is no time such as/],
    [['cases', 'resolve', 'r/1/1', '--applied', '--reason', 'x', '--evidence', 'y', '--read-at', '5'], /^--read-at "5" is no time such as/],
    [['runs', 'resume', 'r', '--id', ''], /^--id "" names no command: it takes 1 to 200 characters/],
    [['cases', 'assign', 'r/1/1', 'kim', '--id', 'x'.repeat(201)], /^--id "x+" names no command/],
    [['plans', 'approve', 'r', '1', '--digest', 'what I saw'], /^--digest "what I saw" is none/],
    [['runs', 'pause', 'r', '--reason', 'x', '--as', ''], /^who decides \(--as, --role\): name/],
  ])('is refused, and named: %j', async (words, message) => {
    expect(await said(...words)).toMatchObject({ code: 2, err: expect.stringMatching(message) });
  });

  it('as a role of the gateway is said to count only where a contract names it', async () => {
    expect((await said('keys', 'create', '--name', 'a', '--role', 'treasurer')).err).toMatch(/the role "treasurer" \(those are viewer, agent, approver, operator, admin\)/);
    expect((await said('keys', 'create', '--name', 'a', '--role', 'admin')).err).not.toMatch(/asks for the role/);
  });

  it('may be a type of another topic: of pools those of both kinds are known', () => {
    expect(unknownTypes(['RunGranted', 'FireEffect', 'RunFinished'], ['tool.tasks.default']).unknown).toEqual(['RunFinished']);
  });

  it('a history in a file that holds none is named with the file', async () => {
    await expect(replayRun(fileURLToPath(import.meta.url), 'none.mjs', undefined)).rejects.toThrow(/words.spec.* holds no history/);
  });
});

describe('the doctor', () => {
  it.each([
    ['20.20.0', 'ok'],
    ['20.19.9', 'wrong'],
    ['24.1.0', 'ok'],
    ['18.20.4', 'wrong'],
  ])('takes Node.js %s for %s', (version, state) => {
    expect(node(version).state).toBe(state);
  });

  it('says that `holdfast up` starts its own servers again, and of others whose address to correct', async () => {
    const gone = { brokers: ['127.0.0.1:1'], databaseUrl: 'postgres://127.0.0.1:1', artifacts: tmpdir() };
    const mends = async (own: boolean) => (await examineStack(gone, { kafka: own, postgres: own })).filter(({ what }) => what === 'Kafka' || what === 'PostgreSQL').map(({ mend }) => mend);
    expect(await mends(true)).toEqual([expect.stringMatching(/Ctrl-C and run `holdfast up` again/), expect.stringMatching(/Ctrl-C/)]);
    expect(await mends(false)).toEqual([expect.stringMatching(/HOLDFAST_BROKERS/), expect.stringMatching(/HOLDFAST_DATABASE_URL/)]);
  });

  it('takes the mend out of a sentence that says what is wrong: what to do', () => {
    expect(fromSentence('machine', 'Java', 'Kafka needs Java 17 or newer and none was found: install a JDK or JRE, or set JAVA_HOME: to one.')).toEqual({
      ...{ area: 'machine', what: 'Java', state: 'wrong', says: 'Kafka needs Java 17 or newer and none was found' },
      mend: 'install a JDK or JRE, or set JAVA_HOME: to one.',
    });
  });
});

describe('a filter of events', () => {
  const event = { type: 'RunFinished', run: 'r1', tenant: 'acme' };
  it.each([
    [{}, true],
    [{ run: 'r1' }, true],
    [{ run: 'r' }, false],
    [{ tenant: 'default' }, false],
    [{ types: ['RunAccepted', 'RunFinished'] }, true],
    [{ types: ['RunAccepted'] }, false],
    [{ run: 'r1', tenant: 'acme', types: ['RunFinished'] }, true],
  ])('%j lets it through: %s', (filter, through) => {
    expect(passes(filter, event)).toBe(through);
  });
});
