import { describe, expect, it } from '@jest/globals';
import { contractWarnings, mayFireLocally, type FailureClass, type ToolContract } from '@holdfast/protocol';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { notApplied } from '../src/define/probe.js';
import { defineTool, referTool, type ToolReference } from '../src/define/tool.js';
import { InvalidDefinition } from '../src/errors.js';

const schemas = { input: z.object({ n: z.number() }), output: z.object({ n: z.number() }) };
const spec = { name: 'pay', version: '1', effect: 'irreversible' as const, owner: 'desk', ...schemas, execute: ({ n }: { n: number }) => ({ n }) };
const cheque = referTool({ name: 'cheque', version: '2', effect: 'irreversible', ...schemas });
const sealing = { sealing: true, ask: () => notApplied() };
const plain = { sealing: false, ask: () => notApplied() };
const contractOf = (more: object = {}): ToolContract => defineTool({ ...spec, ...more } as never).contract('money' as never);

describe('a declaration', () => {
  const back = referTool({ name: 'back', version: '1', effect: 'irreversible', ...schemas });
  const answered = { tool: back, args: { n: { value: 1 } } };
  it.each<[object, RegExp]>([
    [{ retry: { attempts: 2 } }, /^tool pay@1: retry has no member "attempts": is "attemptsMax" meant\?$/],
    [{ retries: { attemptsMax: 2 } }, /"retries": is "retry" meant\?/],
    [{ timeoutMs: 5 }, /"timeoutMs": is "timeout" meant\?/],
    [{ setleDelay: 5 }, /"settleDelay"/],
    [{ colour: 'red' }, /has no member "colour"; it takes name, version, effect, /],
    [{ ageing: { remind: 5 } }, /ageing has no member "remind": is "remindAfter" meant\?/],
    [{ breaker: { failure: 5 } }, /"failures"/],
    [{ approval: { approvers: ['a'], fourEye: true } }, /approval .*"fourEyes"/],
    [{ fallback: { tool: cheque, arg: () => 1 } }, /fallback .*"args"/],
    [{ probe: { ...plain, timeoutMs: 5 } }, /probe has no member "timeoutMs": is "timeout" meant\?/],
    [{ probe: { ...plain, schedule: { first: 5 } } }, /probe.schedule has no member "first"; it takes initial, factor, max/],
    [{ compensate: { ...answered, verfy: false } }, /compensate .*"verify"/],
    [{ compensate: { ...answered, order: { befor: ['x'] } } }, /compensate.order .*"before"/],
    [{ compensate: { ...answered, residual: [{ what: 'fee', amounts: '/n' }] } }, /compensate.residual .*"amount"/],
    [{ recovery: { overlaoded: 'fail' } }, /overlaoded/],
  ])('says nothing that nobody would hear: %#', (more, why) => {
    expect(() => contractOf(more)).toThrow(InvalidDefinition);
    expect(() => contractOf(more)).toThrow(why);
  });

  it('of a tool that lives elsewhere takes nothing that only its host can say', () => {
    expect(() => referTool({ name: 'back', version: '1', effect: 'irreversible', ...schemas, retry: { attemptsMax: 2 } } as never)).toThrow(/tool back@1, which lives in another worker, has no member "retry"/);
  });

  it('of an agent takes no member that there is not, nor does what its runs rest on', () => {
    const agent = { name: 'a', version: '1', ...schemas, run: () => ({ n: 1 }) };
    expect(() => defineAgent({ ...agent, compatible: ['0'] } as never)).toThrow(/agent a@1 has no member "compatible": is "compatibleWith" meant\?/);
    expect(() => defineAgent({ ...agent, resume: { models: { value: 'm', onChange: 'ask', when: 1 } } } as never)).toThrow(/resume.models has no member "when"/);
  });

  it('may be made of objects of a class, which have members of their own, and of what is absent', () => {
    class Bank {
      readonly sealing = false;
      constructor(readonly connection: string) {}
      ask = () => notApplied();
    }
    expect(contractOf({ probe: new Bank('db'), colour: undefined })).toMatchObject({ probe: { sealing: false } });
  });
});

describe('a contract', () => {
  it('says all that was declared, in milliseconds', () => {
    expect(
      contractOf({
        retry: { elapsedMaxMs: 60_000 },
        settleDelay: 3000,
        probe: { ...plain, timeout: 500, schedule: { initial: 100, factor: 3, max: 9000 } },
        ageing: { remindAfter: 1, escalateAfter: 2, escalateTo: 'finance', verdictRole: 'teller' },
        heartbeat: 5000,
        targetRemembersKeysFor: 86_400_000,
        concurrency: 7,
        breaker: { failures: 3, initial: 10, max: 20 },
        hold: 1000,
        fallback: { tool: cheque },
        recovery: { overloaded: 'fail', transient: 'retry_if_not_applied' },
      }),
    ).toMatchObject({
      retry: { attemptsMax: 5, elapsedMaxMs: 60_000 },
      settleDelayMs: 3000,
      probe: { sealing: false, timeoutMs: 500, initialMs: 100, factor: 3, maxMs: 9000 },
      ageing: { remindAfterMs: 1, escalateAfterMs: 2, escalateTo: 'finance', verdictRole: 'teller' },
      heartbeatMs: 5000,
      targetRemembersKeysForMs: 86_400_000,
      concurrencyMax: 7,
      breaker: { failures: 3, initialMs: 10, maxMs: 20 },
      holdMs: 1000,
      fallback: { name: 'cheque', version: '2' },
      recovery: { overloaded: 'fail', transient: 'retry_if_not_applied' },
    });
  });

  it('says nothing that was not', () => {
    expect(Object.keys(contractOf({ probe: plain })).sort()).toEqual(['effect', 'input', 'keyScope', 'name', 'output', 'owner', 'pool', 'probe', 'queueMs', 'retry', 'settleDelayMs', 'timeoutMs', 'version']);
    expect(contractOf({ probe: plain }).probe).toEqual({ sealing: false });
  });

  it.each<[string, object, RegExp]>([
    ['a retry of an irreversible effect', { recovery: { transient: 'retry' } }, /pay@1: recovery.transient: "retry" would fire an irreversible effect again without evidence; "retry_if_not_applied"/],
    ['one retry of it', { recovery: { concurrency_conflict: 'retry_once' } }, /recovery.concurrency_conflict: "retry_once" would fire/],
    ['an unknown outcome that becomes a failure', { recovery: { unknown_outcome: 'fail' } }, /would settle by a guess what nobody knows; it takes "unknown"$/],
    ['the same of an idempotent one', { effect: 'idempotent', recovery: { partial_effect: 'reject' } }, /it takes "unknown", or "retry" under the same key/],
    ['an unknown outcome of a pure tool', { effect: 'pure', recovery: { transient: 'unknown' } }, /leaves an outcome open that a pure tool can't have/],
    ['a recovery that there is none of', { recovery: { transient: 'pray' } }, /recovery.transient/],
    ['a failure class that there is none of', { recovery: { sadness: 'fail' } }, /recovery/],
    ['a fallback to itself', { fallback: { tool: referTool({ name: 'pay', version: '1', effect: 'irreversible', ...schemas }) } }, /its fallback leads back to itself: pay@1, then pay@1/],
    ['a fallback that leads back', { fallback: { tool: referTool({ name: 'cash', version: '1', effect: 'pure', ...schemas, fallback: { tool: referTool({ name: 'pay', version: '1', effect: 'irreversible', ...schemas }) } }) } }, /pay@1, then cash@1, then pay@1/],
    ['a fallback that is no tool', { fallback: { tool: { name: 'cheque', version: '1' } } }, /fallback needs tool: one made by defineTool or referTool/],
    ['a probe without a question', { probe: { sealing: true } }, /probe needs ask/],
    ['a sealing probe of a pure tool', { effect: 'pure', probe: sealing }, /nothing that a sealing probe could void/],
    ['a settle delay of a pure tool', { effect: 'pure', settleDelay: 10 }, /leave settleDelay out/],
    ['keys of a pure tool', { effect: 'pure', targetRemembersKeysFor: 10 }, /leave targetRemembersKeysFor out/],
    ['a schedule that ends before it begins', { probe: { ...plain, schedule: { max: 999 } } }, /probe.schedule.initial is above probe.schedule.max/],
    ['a breaker that ends before it begins', { breaker: { initial: 60_001 } }, /breaker.initial is above breaker.max/],
    ['no time to answer', { probe: { ...plain, timeout: 0 } }, /probe.timeoutMs/],
    ['no place at all', { concurrency: 0 }, /concurrencyMax/],
  ])('is refused by name: %s', (_, wrong, message) => {
    expect(() => contractOf(wrong)).toThrow(InvalidDefinition);
    expect(() => contractOf(wrong)).toThrow(message);
  });

  it('of a reference is held against the same rules', () => {
    const circle = { name: 'pay', version: '1', effect: 'irreversible' as const, ...schemas };
    expect(() => referTool({ ...circle, fallback: { tool: referTool(circle) } })).toThrow(/leads back to itself/);
    expect(referTool({ ...circle, fallback: { tool: cheque, args: ({ n }) => ({ n: n + 1 }) } }).fallback?.args?.({ n: 1 })).toEqual({ n: 2 });
  });

  it('takes every recovery that guesses nothing', () => {
    const classes: FailureClass[] = ['invalid_request', 'transient', 'overloaded', 'expired', 'unknown_outcome'];
    for (const failureClass of classes) {
      expect(contractOf({ recovery: { [failureClass]: 'retry_if_not_applied' } }).recovery).toEqual({ [failureClass]: 'retry_if_not_applied' });
      expect(contractOf({ effect: 'idempotent', recovery: { [failureClass]: 'retry_once' } }).recovery).toEqual({ [failureClass]: 'retry_once' });
    }
  });
});

describe('warnings at start', () => {
  it.each<[string, object, RegExp[]]>([
    ['none', { probe: sealing }, []],
    ['none, with a bound', { probe: plain, settleDelay: 3000 }, []],
    ['nobody settles it', { owner: null }, [/neither a probe nor an owner/]],
    ['its probe proves nothing', { probe: plain }, [/can never prove that an attempt was not applied; declare settleDelay, or a probe that seals/]],
    ['the same of an idempotent tool is none: the same key may go again', { effect: 'idempotent', probe: plain }, []],
    ['heartbeats for nothing', { heartbeat: 30_000 }, [/its heartbeats change nothing/]],
    ['a key that is forgotten first', { targetRemembersKeysFor: 90_000 }, [/no second attempt will be made/]],
  ])('%s', (_, more, warnings) => {
    expect(contractWarnings(contractOf(more))).toEqual(warnings.map((words) => expect.stringMatching(words)));
  });
});

describe('a tool fires without a grant', () => {
  it.each<[string, object, boolean]>([
    ['when it is pure', { effect: 'pure' }, true],
    ['when it is idempotent', { effect: 'idempotent' }, true],
    ['never when it is irreversible', {}, false],
    ['never under a business key', { effect: 'idempotent', keyScope: 'target', target: () => 't' }, false],
    ['never with a limit over all workers', { effect: 'pure', concurrency: 3 }, false],
    ['never when its target forgets keys', { effect: 'idempotent', targetRemembersKeysFor: 1_000_000 }, false],
  ])('%s', (_, more, local) => {
    const tool: ToolReference = defineTool({ ...spec, ...more } as never);
    expect([mayFireLocally(tool), mayFireLocally(contractOf(more))]).toEqual([local, local]);
  });
});
