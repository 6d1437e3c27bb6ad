import { encodeHeaders, FireEffect, OperationKey, ProbeEffect, RevokeEffect, Pool, RunId, Step, toolTasks, runTasks, WorkerId, type EffectClass, type Json, type Message, type Outcome } from '@holdfast/protocol';
import type { Clock, CommitEnd, CommittedOffset, LaneGroup, LaneGroupHandlers, LogRecord, LogWriter, Membership, Outgoing, Random } from '@holdfast/runtime';
import { z } from 'zod';
import { defineTool, type ToolContext, type ToolDefinition } from '../../src/define/tool.js';
import type { WorkerLog } from '../../src/host/log.js';
import type { Execute } from '../../src/host/runs.js';
import { Worker, type WorkerParts } from '../../src/host/worker.js';

export const POOL = Pool.parse('default');
export const TASKS = toolTasks(POOL);
export const RUNS = runTasks(POOL);
export const LEDGER = 'holdfast/ledger/i1';
export const ORCHESTRATOR = 'holdfast/orchestrator/i1';
export const RUN = RunId.parse('run-1');

/** Lets everything that is ready happen. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 12; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
}

const PATIENCE_MS = 20_000;
/** Waits for a fact, turn by turn of the event loop; the time only ends what would hang. */
export async function until(fact: () => boolean, what: string): Promise<void> {
  for (const began = Date.now(); Date.now() - began < PATIENCE_MS; ) {
    if (fact()) return;
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
  throw new Error(`never came: ${what}`);
}

export class TestClock implements Clock {
  #now = 1_000_000;
  #timers: { at: number; callback: () => void }[] = [];

  now = (): number => this.#now;
  after = (delayMs: number, callback: () => void): (() => void) => {
    const timer = { at: this.#now + delayMs, callback };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  };
  soon = (callback: () => void): void => void setImmediate(callback);
  /** Passes time, timer by timer, each with all that follows from it. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      const [next] = this.#timers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at);
      if (next === undefined) break;
      this.#timers = this.#timers.filter((other) => other !== next);
      this.#now = Math.max(this.#now, next.at);
      next.callback();
      await settle();
    }
    this.#now = end;
    await settle();
  }
}

export class TestLog implements WorkerLog {
  readonly alarms: string[] = [];
  readonly warnings: string[] = [];
  info = (): void => undefined;
  warn = (message: string): void => void this.warnings.push(message);
  error = (message: string): void => void this.alarms.push(message);
}

/** A promise that the test settles. */
export class Gate<T = void> {
  open: (value: T) => void = () => undefined;
  fail: (error: Error) => void = () => undefined;
  readonly passed: Promise<T>;
  constructor() {
    this.passed = new Promise<T>((resolve, reject) => {
      this.open = resolve;
      this.fail = reject;
    });
  }
}

export interface SentCommit {
  readonly membership: Membership;
  readonly lane: number;
  readonly offset: number;
  readonly metadata: string;
}

/** Kafka as far as a worker sees it: topics in memory, one group, members, generations. */
export class TestBroker {
  readonly topics = new Map<string, LogRecord[][]>();
  readonly committed = new Map<number, CommittedOffset>();
  readonly commits: SentCommit[] = [];
  readonly members: TestMember[] = [];
  /** First offset that retention has left, by lane of `tool.tasks`. */
  readonly firstOffset = new Map<number, number>();
  readonly holding = new Map<number, TestMember>();
  generation = 0;
  /** Ends a commit otherwise than Kafka would; `apply` writes it. */
  commitEnds: ((commit: SentCommit, apply: () => CommitEnd) => CommitEnd | Promise<CommitEnd>) | undefined;
  readonly written: Outgoing[] = [];
  /** Decides whether a produce succeeds. */
  onPublish: ((records: readonly Outgoing[]) => Promise<void> | void) | undefined;

  constructor(
    readonly clock: TestClock,
    readonly lanes = 2,
  ) {}

  records(topic: string, lane: number): LogRecord[] {
    const partitions = this.topics.get(topic) ?? Array.from({ length: this.lanes }, () => []);
    this.topics.set(topic, partitions);
    return partitions[lane] ?? [];
  }

  append(topic: string, lane: number, ...records: readonly Pick<LogRecord, 'key' | 'headers' | 'value'>[]): number {
    const log = this.records(topic, lane);
    const before = log.length;
    for (const record of records) log.push({ ...record, topic, lane, offset: log.length, time: this.clock.now() });
    for (const member of this.members) member.deliver(topic, lane);
    return before;
  }

  commit(sent: SentCommit): CommitEnd | Promise<CommitEnd> {
    this.commits.push(sent);
    const apply = (): CommitEnd => {
      if (sent.membership.generation !== this.generation) return 'refused';
      this.committed.set(sent.lane, { offset: sent.offset, metadata: sent.metadata });
      return 'accepted';
    };
    return this.commitEnds?.(sent, apply) ?? apply();
  }

  /** A rebalance of those who take part: everyone is told that it begins, then who holds what. */
  rebalance(lanesOf: ReadonlyMap<TestMember, readonly number[]>, retain = true): void {
    this.generation += 1;
    for (const member of lanesOf.keys()) member.revoke();
    for (const [member, lanes] of lanesOf) member.assign(lanes, retain ? lanes.filter((lane) => this.holding.get(lane) === member) : []);
    for (const [member, lanes] of lanesOf) for (const lane of lanes) this.holding.set(lane, member);
  }

  readonly writer: LogWriter = {
    publish: async (records) => {
      await this.onPublish?.(records);
      this.written.push(...records);
    },
    close: () => Promise.resolve(),
  };

  /** Data of all messages of a type that were acknowledged, in order. */
  sent<T = Record<string, Json>>(type: string): T[] {
    return this.written.filter((record) => record.headers['ce_type'] === type).map((record) => JSON.parse(record.value) as T);
  }
}

export class TestMember implements LaneGroup {
  readonly sessionTimeoutMs = 6000;
  membership: Membership | null = null;
  heartbeatSentAt: number | null = null;
  rejoins = 0;
  left = false;
  /** What a rejoin leads to; by default all lanes come back, newly taken. */
  onRejoin: () => void;
  readonly #positions = new Map<string, number>();

  constructor(
    readonly broker: TestBroker,
    readonly handlers: LaneGroupHandlers,
    readonly name: string,
  ) {
    this.onRejoin = () => broker.rebalance(new Map([[this, [...Array(broker.lanes).keys()]]]), false);
    broker.members.push(this);
  }

  started = false;
  start = (): Promise<void> => {
    this.started = true;
    return Promise.resolve();
  };
  stop = (): Promise<void> => {
    this.left = true;
    this.revoke();
    return Promise.resolve();
  };
  rejoin = (): Promise<void> => {
    this.rejoins += 1;
    this.revoke();
    this.onRejoin();
    return Promise.resolve();
  };

  revoke(): void {
    this.heartbeatSentAt = null;
    if (this.membership === null) return;
    this.membership = null;
    this.#positions.clear();
    this.handlers.onRevoked();
  }

  assign(lanes: readonly number[], retained: readonly number[]): void {
    this.membership = { memberId: this.name, generation: this.broker.generation };
    this.heartbeatSentAt = this.broker.clock.now();
    this.handlers.onAssigned({ membership: this.membership, lanes, retained });
  }

  open = (positions: readonly { topic: string; lane: number; offset: number }[]): void => {
    for (const { topic, lane, offset } of positions) {
      this.#positions.set(`${topic}/${lane}`, offset);
      queueMicrotask(() => this.deliver(topic, lane));
    }
  };

  /** Hands over what is there, in one batch, as a fetch would. */
  deliver(topic: string, lane: number): void {
    const position = this.#positions.get(`${topic}/${lane}`);
    if (position === undefined || this.membership === null) return;
    const records = this.broker.records(topic, lane).slice(position);
    if (records.length === 0) return;
    this.#positions.set(`${topic}/${lane}`, position + records.length);
    void this.handlers.onRecords(records, this.membership);
  }

  isOpen = (topic: string, lane: number): boolean => this.#positions.has(`${topic}/${lane}`);

  committed = (_topic: string, lanes: readonly number[]): Promise<Map<number, CommittedOffset>> =>
    Promise.resolve(new Map(lanes.map((lane) => [lane, this.broker.committed.get(lane) ?? { offset: null, metadata: '' }])));

  offsets = (topic: string): Promise<Map<number, { first: number; next: number }>> =>
    Promise.resolve(new Map([...Array(this.broker.lanes).keys()].map((lane) => [lane, { first: topic === TASKS ? (this.broker.firstOffset.get(lane) ?? 0) : 0, next: this.broker.records(topic, lane).length }])));

  commit = async (membership: Membership, offsets: readonly { topic: string; lane: number; offset: number; metadata: string }[]): Promise<CommitEnd> => {
    const [only, ...others] = offsets;
    if (only === undefined || others.length > 0) throw new Error('one lane for each commit');
    return this.broker.commit({ membership, lane: only.lane, offset: only.offset, metadata: only.metadata });
  };

  heartbeatAgeMs = (): number | null => (this.heartbeatSentAt === null ? null : this.broker.clock.now() - this.heartbeatSentAt);
}

export interface TaskOptions {
  readonly seq: number;
  readonly prev?: number;
  readonly source?: string;
  readonly effect?: EffectClass;
  readonly tool?: string;
  readonly version?: string;
  readonly attempt?: number;
  readonly step?: string;
  readonly run?: string;
  readonly args?: Json;
  readonly notAfter?: number;
  readonly timeoutMs?: number;
  readonly lane?: number;
}

export const keyOf = (seq: number): OperationKey => OperationKey.parse(seq.toString(16).padStart(64, '0'));

export function task(options: TaskOptions): Pick<LogRecord, 'key' | 'headers' | 'value'> {
  const { seq, effect = 'irreversible', tool = 'pay', version = '1', attempt = 1, run = RUN, lane = 0, source = LEDGER } = options;
  const data = FireEffect({
    step: Step.parse(options.step ?? String(seq)),
    key: keyOf(seq),
    tool: { name: tool, version },
    effect,
    attempt,
    fence: 1,
    args: options.args ?? { n: seq },
    notAfter: options.notAfter ?? 9_000_000,
    timeoutMs: options.timeoutMs ?? 30_000,
  });
  return fromService(source, run, data, { lane, seq, prev: options.prev ?? seq - 1 });
}

/** Reconciliation asks about the effect of the task with number `of`. */
export function question(options: { seq: number; prev?: number; of?: number; tool?: string; attempt?: number; probe?: number; answerBy?: number; timeoutMs?: number; operationId?: string; issuedAt?: number; args?: Json; lane?: number }): Pick<LogRecord, 'key' | 'headers' | 'value'> {
  const { seq, of = 1, tool = 'pay', attempt = 1, lane = 0, operationId, issuedAt } = options;
  const data = ProbeEffect({
    step: Step.parse(String(of)),
    key: keyOf(of),
    tool: { name: tool, version: '1' },
    attempt,
    fence: 1,
    args: options.args ?? { n: of },
    probe: options.probe ?? 1,
    ...(operationId === undefined ? {} : { operationId }),
    ...(issuedAt === undefined ? {} : { issuedAt }),
    answerBy: options.answerBy ?? 9_000_000,
    timeoutMs: options.timeoutMs ?? 10_000,
  });
  return fromService('holdfast/reconciliation/i1', RUN, data, { lane, seq, prev: options.prev ?? seq - 1 });
}

/** The ledger no longer wants an attempt of the task with number `of`. */
export function revocation({ seq, of = 1, attempt = 1, prev }: { seq: number; of?: number; attempt?: number; prev?: number }): Pick<LogRecord, 'key' | 'headers' | 'value'> {
  return fromService(LEDGER, RUN, RevokeEffect({ step: Step.parse(String(of)), key: keyOf(of), attempt, because: 'attempt 1 has succeeded after all' }), { lane: 0, seq, prev: prev ?? seq - 1 });
}

export function fromService(source: string, run: string, message: Message, at: { lane: number; seq: number; prev: number }): Pick<LogRecord, 'key' | 'headers' | 'value'> {
  return { key: run, headers: encodeHeaders({ id: `${source}/${at.lane}/${at.seq}`, type: message.type, source, subject: run, time: 1, tenant: 'default', ...at }), value: JSON.stringify(message.data) };
}

export interface Called {
  readonly name: string;
  readonly n: unknown;
  readonly context: ToolContext;
}

/** Tools that note each call and do what the test says. */
export class TestTools {
  readonly calls: Called[] = [];
  readonly definitions: ToolDefinition[];
  /** What a call returns; by default its `n`. */
  act: (called: Called) => unknown = ({ n }) => ({ done: n });

  constructor() {
    const input = z.object({ n: z.number() });
    const output = z.unknown();
    const make = (name: string, effect: EffectClass): ToolDefinition =>
      defineTool({
        name,
        version: '1',
        effect,
        input,
        output,
        execute: (args, context) => {
          const called = { name, n: args.n, context };
          this.calls.push(called);
          return this.act(called);
        },
      }) as unknown as ToolDefinition;
    this.definitions = [make('pay', 'irreversible'), make('put', 'idempotent'), make('look', 'pure')];
  }

  tool(name: string): ToolDefinition {
    const found = this.definitions.find((definition) => definition.name === name);
    if (found === undefined) throw new Error(`no tool ${name}`);
    return found;
  }

  /** The `n` of every call so far. */
  get fired(): unknown[] {
    return this.calls.map(({ n }) => n);
  }
}

export interface Stage {
  readonly clock: TestClock;
  readonly broker: TestBroker;
  readonly log: TestLog;
  readonly tools: TestTools;
  readonly worker: Worker;
  readonly member: TestMember;
  report(n: number): Outcome[];
}

let workers = 0;
const random: Random = { next: () => 0.5, uuid: () => `u${(workers += 1)}` };

export interface StageOptions extends Partial<Pick<WorkerParts, 'agents' | 'execute' | 'artifacts' | 'concurrency' | 'irreversibleConcurrency' | 'readLane' | 'observer'>> {
  readonly broker?: TestBroker;
  readonly name?: string;
  readonly tools?: TestTools;
}

const noRuns: Execute = () => {
  throw new Error('no runs in this test');
};

/** A worker before a broker in memory; it has started and holds nothing yet. */
export async function stage(options: StageOptions = {}): Promise<Stage> {
  const clock = options.broker?.clock ?? new TestClock();
  const broker = options.broker ?? new TestBroker(clock);
  const log = new TestLog();
  const tools = options.tools ?? new TestTools();
  const name = options.name ?? 'worker-a';
  let member: TestMember | undefined;
  const worker = new Worker({
    id: WorkerId.parse(name),
    pool: POOL,
    agents: options.agents ?? [],
    tools: tools.definitions,
    createGroup: (handlers) => (member = new TestMember(broker, handlers, name)),
    writer: broker.writer,
    readLane: options.readLane ?? ((topic, lane, from, to) => Promise.resolve(broker.records(topic, lane).slice(from, to))),
    execute: options.execute ?? noRuns,
    artifacts: options.artifacts,
    clock,
    random,
    log,
    concurrency: options.concurrency ?? 64,
    irreversibleConcurrency: options.irreversibleConcurrency ?? 4,
    observer: options.observer,
    crashPoint: () => undefined,
  });
  await worker.start();
  if (member === undefined) throw new Error('the worker made no group member');
  const report = (n: number): Outcome[] => broker.sent<{ key: string; outcome: Outcome }>('EffectReported').filter(({ key }) => key === keyOf(n)).map(({ outcome }) => outcome);
  return { clock, broker, log, tools, worker, member, report };
}

/** Gives lanes to a member, alone, and waits until they are open. */
export async function give(member: TestMember, lanes: readonly number[] = [0, 1]): Promise<void> {
  member.broker.rebalance(new Map([[member, lanes]]));
  await until(() => lanes.every((lane) => member.isOpen(TASKS, lane)), `lanes ${lanes.join()} are open`);
}
