import { describe, expect, it } from '@jest/globals';
import type { ArtifactRef, Step } from '@holdfast/protocol';
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { equalsJson, INLINE_BYTES_MAX, toJson } from '../src/define/json.js';
import { defineTool } from '../src/define/tool.js';
import { InvalidDefinition, NotJson } from '../src/errors.js';
import type { Run, RunArtifacts } from '../src/run/index.js';
import { names, StandIn } from './stand-in.js';

class Money {
  constructor(readonly amount: number) {}
}
const cycle: { self?: unknown } = {};
cycle.self = { inside: cycle };
const deep = (levels: number): unknown => (levels === 0 ? 1 : { next: deep(levels - 1) });

describe('what JSON would lose or change is refused with its path', () => {
  it.each<[string, unknown, string, RegExp]>([
    ['bigint', { a: [1n] }, '$.a[0]', /bigint/],
    ['Date', { when: new Date(0) }, '$.when', /a Date/],
    ['Map', { m: new Map() }, '$.m', /Map/],
    ['Set', [new Set()], '$[0]', /Set/],
    ['instance of a class', { price: new Money(5) }, '$.price', /an instance of Money/],
    ['cycle', cycle, '$.self.inside', /a cycle/],
    ['undefined in an object', { a: { b: undefined } }, '$.a.b', /undefined/],
    ['undefined in an array', [1, undefined], '$[1]', /undefined/],
    ['a hole in an array', [1, , 3], '$[1]', /undefined/],
    ['undefined itself', undefined, '$', /undefined/],
    ['NaN', { n: NaN }, '$.n', /NaN/],
    ['Infinity', { n: -Infinity }, '$.n', /-Infinity/],
    ['an unsafe integer', { n: 2 ** 53 }, '$.n', /beyond what a number holds exactly/],
    ['a __proto__ member', JSON.parse('{"a":{"__proto__":1}}'), '$.a.__proto__', /rename it/],
    ['function', { f: () => 1 }, '$.f', /a function/],
    ['symbol', [Symbol('s')], '$[0]', /a symbol/],
    ['a member with an odd name', { 'a b': { 'c"d': 1n } }, '$["a b"]["c\\"d"]', /bigint/],
    ['too deep', deep(501), '$.next', /nested more than 500 levels/],
  ])('%s', (_, value, path, found) => {
    const error = (() => {
      try {
        return toJson(value, 'it');
      } catch (caught) {
        return caught;
      }
    })();
    expect(error).toBeInstanceOf(NotJson);
    if (!(error instanceof NotJson)) return;
    expect(error.path.slice(0, path.length)).toBe(path);
    expect(error.found).toMatch(found);
  });

  it.each<[string, unknown]>([
    ['NUL and control characters', { text: 'a\u0000b\u001f' }],
    ['lone surrogates', ['\ud800', 'x\udc00y']],
    ['null prototypes', Object.assign(Object.create(null), { a: 1 })],
    ['the largest safe integer', [Number.MAX_SAFE_INTEGER, -Number.MAX_SAFE_INTEGER]],
    ['fractions and exponents', [0.1, 1.5e-300, 5e-324]],
    ['nothing but structure', [[], {}, [{}], { a: [] }]],
    ['500 levels', deep(500)],
  ])('%s come back as they are', (_, value) => {
    const { value: copy, bytes } = toJson(value, 'it');
    expect(JSON.parse(JSON.stringify(copy))).toEqual(JSON.parse(JSON.stringify(value)));
    expect(bytes).toBeGreaterThanOrEqual(Buffer.byteLength(JSON.stringify(copy)));
  });

  it('makes -0 the 0 that a replay would see', () => {
    expect(Object.is(toJson(-0, 'it').value, 0)).toBe(true);
  });

  it('counts the bytes of what is large exactly', () => {
    const large = { text: 'ä'.repeat(100_000) };
    expect(toJson(large, 'it').bytes).toBe(Buffer.byteLength(JSON.stringify(large)));
  });

  it('compares with a record by content', () => {
    expect(equalsJson({ b: 1, a: [null, 'x'] }, { a: [null, 'x'], b: 1 })).toBe(true);
    for (const other of [{ a: [null], b: 1 }, { a: [null, 'x'] }, { a: [null, 'x'], b: 1, c: undefined }, { a: { 0: null, 1: 'x' }, b: 1 }, null, 1]) {
      expect(equalsJson(other, { a: [null, 'x'], b: 1 })).toBe(false);
    }
  });
});

const anything = { input: z.object({ text: z.string() }), output: z.object({ text: z.string() }) };
const echo = defineTool({ name: 'echo', version: '1', effect: 'pure', ...anything, execute: ({ text }) => ({ text }) });
const grow = defineTool({ name: 'grow', version: '1', effect: 'pure', input: z.object({ bytes: z.number() }), output: z.object({ text: z.string() }), execute: ({ bytes }) => ({ text: 'x'.repeat(bytes) }) });
const agent = (run: (run: Run) => Promise<unknown>) => defineAgent({ name: 'agent', version: '1', input: z.null(), output: z.unknown(), run });
const KIB = 1024;

class Shelf implements RunArtifacts {
  readonly kept = new Map<string, Uint8Array>();
  away = 0;
  put(bytes: Uint8Array, about: { readonly mediaType: string; readonly scope: { readonly tenant: string; readonly run?: string } }): Promise<ArtifactRef> {
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    this.kept.set(sha256, bytes);
    return Promise.resolve({ sha256, bytes: bytes.byteLength, mediaType: about.mediaType, scope: `${about.scope.tenant}/${about.scope.run ?? ''}` });
  }
  get(ref: ArtifactRef): Promise<Uint8Array> {
    const bytes = this.kept.get(ref.sha256);
    if ((this.away -= 1) >= 0 || bytes === undefined) return Promise.reject(new Error('the store is away'));
    return Promise.resolve(bytes);
  }
}

describe('values of 300 KiB', () => {
  const large = 300 * KIB;

  it('as arguments are refused before anything is recorded, with the advice what to do', async () => {
    const stand = new StandIn({ tools: [echo] });
    await stand.execute(agent(async (run) => run.call(echo, { text: 'x'.repeat(large) })));
    expect(names(stand.messages)).toEqual(['FinishRun']);
    expect(stand.ending).toMatchObject({ failure: { class: 'invalid_request', message: expect.stringMatching(/the arguments of echo@1 has 3072\d\d bytes.*run\.artifact/) } });
  });

  it('as results go to the store by reference, come back live and replayed, and are fetched until the store gives them', async () => {
    const stand = new StandIn({ tools: [grow] });
    const shelf = new Shelf();
    let asked = 0;
    const code = agent(async (run) => {
      const called = await run.call(grow, { bytes: large });
      const thought = await run.model('think', () => ({ output: 'y'.repeat(large) }));
      const small = await run.call(grow, { bytes: 3 });
      return [called.text.length, thought.length, small.text];
    });
    const counting = { put: shelf.put.bind(shelf), get: (ref: ArtifactRef) => ((asked += 1), shelf.get(ref)) };
    await stand.execute(code, null, { artifacts: counting });
    expect(stand.ending).toEqual({ status: 'completed', output: { value: [large, large, 'xxx'] } });
    expect(stand.steps.get('1' as Step)).toMatchObject({ outcome: { result: { artifact: { mediaType: 'application/json', scope: 'default/run-1' } } } });
    expect(stand.steps.get('2' as Step)).toMatchObject({ result: { artifact: {} } });
    expect(asked).toBe(0);
    expect(Math.max(...stand.messages.map((message) => JSON.stringify(message.data).length))).toBeLessThan(10 * KIB);

    stand.crash();
    stand.ending = null;
    shelf.away = 3;
    await stand.execute(code, null, { artifacts: counting });
    expect(stand.ending).toEqual({ status: 'completed', output: { value: [large, large, 'xxx'] } });
    expect(stand.fired.length).toBe(2);
    expect(stand.troubles.filter((trouble) => trouble.includes('the store is away')).length).toBeGreaterThan(0);
  });

  it('as the output go there too', async () => {
    const stand = new StandIn({ tools: [] });
    await stand.execute(agent(async () => 'z'.repeat(large)), null, { artifacts: new Shelf() });
    expect(stand.ending).toMatchObject({ status: 'completed', output: { artifact: { bytes: large + 2 } } });
  });

  it('without a store: a result is named as unreadable and its effect not repeated, work fails without a retry', async () => {
    const stand = new StandIn({ tools: [grow] });
    const code = agent(async (run) => [
      await run.call(grow, { bytes: large }).then((found) => found.text.length, (error: Error) => error.name),
      await run.step('work', () => 'x'.repeat(large)).then(() => 'kept', (error: Error) => error.message),
    ]);
    await stand.execute(code);
    expect(stand.steps.get('1' as Step)).toMatchObject({ outcome: { status: 'succeeded', result: { unreadable: expect.stringContaining('no artifact store') } } });
    expect(stand.ending).toMatchObject({ output: { value: [large, expect.stringContaining('no artifact store')] } });
    expect([stand.fired.length, names(stand.messages).filter((name) => name.startsWith('ReportTry')).length]).toEqual([1, 1]);
  });
});

describe('reports that do not fit beside the next intent', () => {
  it('go before it in messages of their own, each below the limit', async () => {
    const stand = new StandIn({ tools: [grow] });
    const size = Math.floor(INLINE_BYTES_MAX * 0.9);
    await stand.execute(
      agent(async (run) => {
        const found = await run.all(Array.from({ length: 6 }, () => (branch: Run) => branch.call(grow, { bytes: size })));
        return found.length;
      }),
    );
    const sizes = stand.messages.map((message) => Buffer.byteLength(JSON.stringify(message.data)));
    expect(Math.max(...sizes)).toBeLessThan(256 * KIB);
    expect(stand.messages.flatMap(({ data }) => ('settles' in data ? (data.settles ?? []).map(({ step }) => step) : [])).sort()).toEqual(['1.1.1', '1.2.1', '1.3.1', '1.4.1', '1.5.1', '1.6.1']);
    expect(stand.ending?.status).toBe('completed');
  });
});

describe('reports of what is proved in part', () => {
  it('are counted as large as they are', async () => {
    const stand = new StandIn({ tools: [grow] });
    stand.fireLocal = ({ step, attempt }) => Promise.resolve({ step, attempt, outcome: { status: 'unknown', cause: 'partial_effect', message: 'half', proved: '\u0001'.repeat(2600) } });
    stand.begin(agent(async (run) => run.all(Array.from({ length: 40 }, () => (branch: Run) => branch.call(grow, { bytes: 1 })))));
    await stand.quiet();
    const sizes = stand.messages.map((message) => Buffer.byteLength(JSON.stringify(message.data)));
    expect(Math.max(...sizes)).toBeLessThan(256 * KIB);
    expect(stand.messages.flatMap(({ data }) => ('settles' in data ? (data.settles ?? []) : []))).toHaveLength(40);
  });
});

describe('an artifact', () => {
  it('is kept once and recorded by reference', async () => {
    const stand = new StandIn({ tools: [] });
    const shelf = new Shelf();
    const code = agent(async (run) => [await run.artifact('report', { a: 1 }), await run.artifact('text', 'hello'), await run.artifact('bytes', new Uint8Array([1]), 'image/png')]);
    await stand.execute(code, null, { artifacts: shelf });
    expect(stand.ending).toMatchObject({ output: { value: [{ mediaType: 'application/json' }, { mediaType: 'text/plain; charset=utf-8' }, { mediaType: 'image/png', bytes: 1 }] } });
    const before = stand.ending;
    stand.crash();
    stand.ending = null;
    await stand.execute(code, null, { artifacts: new Shelf() });
    expect(stand.ending).toEqual(before);
  });
});

describe('definitions', () => {
  const spec = { name: 'refund', version: '1', effect: 'idempotent' as const, ...anything, execute: ({ text }: { text: string }) => ({ text }) };

  it('has defaults, in milliseconds, and a contract with JSON Schemas', () => {
    const contract = defineTool({ ...spec, material: ['text'] }).contract('money' as never);
    expect(contract).toMatchObject({ name: 'refund', version: '1', pool: 'money', effect: 'idempotent', keyScope: 'run', material: ['text'], timeoutMs: 30_000, queueMs: 60_000, settleDelayMs: null, probe: null, owner: null });
    expect(contract.retry).toEqual({ attemptsMax: 5, initialMs: 200, maxMs: 30_000, factor: 2 });
    expect(contract.input).toMatchObject({ type: 'object', properties: { text: { type: 'string' } }, required: ['text'] });
  });

  it.each<[string, object, RegExp]>([
    ['a target key without a target', { keyScope: 'target' }, /keyScope "target" needs target/],
    ['a name with a space', { name: 'two words' }, /name: a name begins with a letter/],
    ['retries that end before they begin', { retry: { initialMs: 10, maxMs: 5 } }, /initialMs is above maxMs/],
    ['no time at all', { timeout: 0 }, /timeoutMs/],
    ['no schema', { input: undefined }, /input is no zod schema/],
  ])('are refused by name: %s', (_, wrong, message) => {
    expect(() => defineTool({ ...spec, ...wrong } as never)).toThrow(message);
    expect(() => defineTool({ ...spec, ...wrong } as never)).toThrow(InvalidDefinition);
  });
});
