import { randomUUID } from 'node:crypto';
import {
  DEFAULT_TENANT,
  DeliverCallback,
  describeIssues,
  digestOf,
  encodeHeaders,
  Pool,
  RunId,
  SignalRun,
  StartRun,
  Tenant,
  topics,
  VALUE_BYTES_MAX,
  type Budgets,
  type Json,
  type Message,
  type Named,
} from '@holdfast/protocol';
import { isRefusal } from '@holdfast/runtime/kafka';
import { systemClock } from '@holdfast/runtime/system';
import type { z } from 'zod';
import type { AgentDefinition } from '../define/agent.js';
import { INLINE_BYTES_MAX, toJson } from '../define/json.js';
import type { ToolReference } from '../define/tool.js';
import { InvalidArguments, OutcomeTimeout, ValueTooLarge } from '../errors.js';
import { momentOf, onDeadlineOf, type DeadlineAction, type Duration } from '../wait/when.js';
import { AttachedRun } from './attached-run.js';
import { keepOpen } from './keep-open.js';
import { kafkaLog, type ClientLog, type RunEventRecord } from './log.js';
import { standingOf, type RunStanding } from './standing.js';
import { EndWatcher, outcomeOf, type ClientArtifacts, type End, type RunOutcome } from './outcome.js';
import { CLOCK_SKEW_MS, LiveRuns, streamOf, type RunStream } from './stream.js';

/** What else is said of a run that is started. */
export interface StartOptions {
  /** Names the run: the same id with the same input is the same run. Default: a random one. */
  readonly runId?: string | undefined;
  /** The workers that shall run it. Default `default`. */
  readonly pool?: string | undefined;
  /** What the run is for, in words: for people. */
  readonly goal?: string | undefined;
  /** What must hold at the end, in words: for people. */
  readonly success?: readonly string[] | undefined;
  /** On whose behalf. */
  readonly principal?: string | undefined;
  /** Epoch milliseconds, a Date, or how long from now on in words, such as `'2 days'`. */
  readonly deadline?: number | Date | Exclude<Duration, number> | undefined;
  /** What happens at the deadline. Default: the run expires. */
  readonly onDeadline?: DeadlineAction | undefined;
  /** Steps, attempts, tokens, cost and wall time (milliseconds). Nearing one is an event; reaching it stops the run with its progress kept. */
  readonly budgets?: Budgets | undefined;
  /** Names a conversation, of which one run at most goes on at a time. */
  readonly concurrencyKey?: string | undefined;
  /** Where that conversation has an open run: wait, be refused, cancel it, or cancel it and have it compensated. Default: `enqueue`. */
  readonly onConcurrent?: 'enqueue' | 'reject' | 'interrupt' | 'rollback' | undefined;
  /** Higher ones are let in earlier, from -100 to 100. Default 0. */
  readonly priority?: number | undefined;
  /** How long it may wait to be let in, milliseconds; 0: not at all. */
  readonly queueMs?: number | undefined;
}

/** How long to wait. */
export interface WaitOptions {
  /** Milliseconds; without it the wait is as long as the run. */
  readonly timeoutMs?: number | undefined;
}

/** What is said of a run whose loop is the client’s own. */
export interface AttachOptions extends Omit<StartOptions, 'runId'> {
  /** What the run is started with; the same again is the same run. Default null. */
  readonly input?: Json | undefined;
  /** Tools that can be called by name. */
  readonly tools?: readonly ToolReference[] | undefined;
  /** The run is no older than this (epoch milliseconds): spares reading its lane from the beginning. */
  readonly since?: number | undefined;
}

/** A run that can be waited for. */
export interface RunHandle<Output = Json> {
  /** The run’s id. */
  readonly id: RunId;
  /**
   * How the run ended, when it has. Brokers that are away are waited for.
   * @throws OutcomeTimeout it goes on
   * @throws IntentRefusedError its start was refused; NotAdmitted: there was no room for it
   * @throws ResultUnreadable it ended, and its output can't be read
   */
  outcome(options?: WaitOptions): Promise<RunOutcome<Output>>;
  /** Every event from the first on, past ones and coming ones; over when the run is. @throws BrokersUnavailable, BrokerRefused it could not begin */
  events(): AsyncGenerator<RunEventRecord, void, undefined>;
}

/** Where Kafka is, and for whom the client speaks. */
export interface ConnectOptions {
  /** Kafka's addresses, `host:port`. */
  readonly brokers: readonly string[];
  /** Whose runs it starts and sees. Default `default`. */
  readonly tenant?: string | undefined;
  /** Where outputs are read that are too large for a message. */
  readonly artifacts?: ClientArtifacts | undefined;
}

const PUBLISHES_MAX = 6;
const PUBLISH_FIRST_MS = 100;
/** A run that is new shows its first event sooner; else it is older, and is looked for from the beginning. */
const OLDER_AFTER_MS = 3000;

/** Starts runs and follows them, straight through the topics. */
export class HoldfastClient {
  readonly #live: LiveRuns;
  readonly #source = `holdfast/client/${randomUUID()}`;
  readonly #streams = new Set<RunStream>();
  #sent = 0;
  #closed = false;

  private constructor(
    private readonly log: ClientLog,
    private readonly tenant: Tenant,
    private readonly artifacts: ClientArtifacts | undefined,
  ) {
    this.#live = new LiveRuns(log, tenant);
  }

  /** @throws BrokersUnavailable they can't be reached, or Holdfast's topics aren't there; BrokerRefused */
  static async connect(options: ConnectOptions): Promise<HoldfastClient> {
    return HoldfastClient.over(await kafkaLog(options.brokers, 'holdfast-client'), options);
  }

  /** A client on another log than Kafka: for tests. @internal */
  static over(log: ClientLog, { tenant, artifacts }: Omit<ConnectOptions, 'brokers'> = {}): HoldfastClient {
    return new HoldfastClient(log, tenant === undefined ? DEFAULT_TENANT : parsed(Tenant, tenant, 'tenant'), artifacts);
  }

  /**
   * Asks for a run. Resolves when Kafka has the intent for good; whether it is accepted shows in
   * its events and its outcome.
   * @throws InvalidArguments, NotJson, ValueTooLarge before anything is sent; BrokersUnavailable, BrokerRefused
   */
  start<Input extends z.ZodType, Output extends z.ZodType>(agent: AgentDefinition<Input, Output>, input: z.input<Input>, options?: StartOptions): Promise<RunHandle<z.output<Output>>>;
  start(agent: Named & { readonly input?: never }, input: Json, options?: StartOptions): Promise<RunHandle>;
  async start(agent: Named | AgentDefinition, input: unknown, options: StartOptions = {}): Promise<RunHandle<never>> {
    const id = parsed(RunId, options.runId ?? randomUUID(), 'run id');
    const named = { name: agent.name, version: agent.version };
    const what = `the input of ${named.name}@${named.version}`;
    const sized = toJson(input, what);
    if (sized.bytes > INLINE_BYTES_MAX) throw new ValueTooLarge(what, sized.bytes, INLINE_BYTES_MAX, 'store the large part as an artifact and pass the reference');
    if ('input' in agent) {
      const checked = agent.input.safeParse(sized.value);
      if (!checked.success) throw new InvalidArguments(`${what}: ${describeIssues(checked.error)}`);
    }
    const watcher = new EndWatcher(id, Date.now(), { agent: named, digest: digestOf(sized.value) });
    this.#live.add(watcher);
    watcher.asked(await this.#start(id, named, sized.value, options));
    // What the run returns was checked by its own schema before it was recorded.
    return this.#handle(id, watcher) as RunHandle<never>;
  }

  /** A run that somebody started. */
  run(runId: string): RunHandle {
    const id = parsed(RunId, runId, 'run id');
    return { id, outcome: (options) => this.outcome(id, options), events: () => this.events(id) };
  }

  /** How a run ended, whoever started it. Reads its lane from the beginning, and waits for brokers that are away. @throws like `RunHandle.outcome` */
  async outcome(runId: string, { timeoutMs }: WaitOptions = {}): Promise<RunOutcome> {
    const id = parsed(RunId, runId, 'run id');
    const watcher = new EndWatcher(id, 0, undefined);
    const end = await this.#ended(watcher, timeoutMs, (fail) => this.#lookBack(watcher, fail));
    return outcomeOf(end, id, this.tenant, this.artifacts);
  }

  /**
   * How what a run did stands: what its latest plan of compensation came to, once it is concluded. Waits for a plan too, and a
   * run with nothing to answer never has one: give `timeoutMs`. Reads its lane from the beginning. @throws OutcomeTimeout
   */
  async standing(runId: string, { timeoutMs }: WaitOptions = {}): Promise<RunStanding> {
    const id = parsed(RunId, runId, 'run id');
    return standingOf(id, timeoutMs, { open: (onEvent, onError) => this.#stream(id, 'beginning', onEvent, onError), close: (stream) => this.#close(stream), wanted: () => !this.#closed });
  }

  /** Every event of a run, whoever started it. Reads its lane from the beginning. @throws BrokersUnavailable, BrokerRefused it could not begin */
  events(runId: string): AsyncGenerator<RunEventRecord, void, undefined> {
    return this.#events(parsed(RunId, runId, 'run id'));
  }

  /**
   * Sends a run something that it may wait for by `run.signal`. One that comes before its wait is kept.
   * Resolves when Kafka has it for good; what became of it shows in the run's events (`SignalReceived`, or
   * `InputRefused` with the reason). `id`: the same one again is the same signal. Default: a random one.
   * @throws InvalidArguments, NotJson, ValueTooLarge before anything is sent; BrokersUnavailable, BrokerRefused
   */
  async signal(runId: string, name: string, payload: Json, { id = randomUUID() }: { readonly id?: string | undefined } = {}): Promise<void> {
    const data = { signal: id, name, payload: payloadOf(payload, `the payload of signal "${name}"`) };
    await this.#publish(parsed(RunId, runId, 'run id'), SignalRun(parsed(SignalRun.schema, data, 'the signal')));
  }

  /**
   * Passes a third party's answer on to the wait that it answers: run, step and token as in its URL.
   * The token is good for one answer. Resolves when Kafka has it for good; an answer that can't be taken is
   * an `InputRefused` among the run's events.
   * @throws InvalidArguments, NotJson, ValueTooLarge before anything is sent; BrokersUnavailable, BrokerRefused
   */
  async deliverCallback(runId: string, step: string, token: string, payload: Json): Promise<void> {
    const data = { step, token, payload: payloadOf(payload, 'the answer') };
    await this.#publish(parsed(RunId, runId, 'run id'), DeliverCallback(parsed(DeliverCallback.schema, data, 'the callback')));
  }

  /**
   * For a harness that owns its loop: its tool calls are recorded and made safe, the rest stays its
   * own. The same id and input again is the same run, with all that is recorded of it.
   * @throws IntentRefusedError a run with this id has another input or an agent; NotAdmitted: there was no room for it; BrokersUnavailable, BrokerRefused
   */
  async attach(runId: string, { input = null, tools = [], since, ...options }: AttachOptions = {}): Promise<AttachedRun> {
    const id = parsed(RunId, runId, 'run id');
    const { value } = toJson(input, 'the input');
    const run = new AttachedRun({ id, tenant: this.tenant, tools, artifacts: this.artifacts, digest: digestOf(value), publish: async (message) => void (await this.#publish(id, message)) });
    const stream = await this.#stream(id, since === undefined ? 'beginning' : { time: since - CLOCK_SKEW_MS }, (record) => run.tell(record), (error) => run.fail(error));
    run.onClosed(() => this.#close(stream));
    try {
      await stream.caughtUp;
      await run.begin(async () => void (await this.#start(id, null, value, options)));
      return run;
    } catch (error) {
      await run.close();
      throw error;
    }
  }

  /** Stops following. What was asked for is not taken back. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#live.close();
    await Promise.all([...this.#streams].map((stream) => this.#close(stream)));
    await this.log.close();
  }

  #handle(id: RunId, watcher: EndWatcher): RunHandle {
    return {
      id,
      outcome: async ({ timeoutMs } = {}) => {
        const end = await this.#ended(watcher, timeoutMs, (fail) => this.#lookAhead(watcher, fail));
        return outcomeOf(end, id, this.tenant, this.artifacts);
      },
      events: () => this.#events(id),
    };
  }

  /** Waits for the end that `look` goes looking for; its answer stops the looking. */
  #ended(watcher: EndWatcher, timeoutMs: number | undefined, look: (fail: (error: unknown) => void) => () => void): Promise<End> {
    return new Promise<End>((resolve, reject) => {
      const over = (): void => {
        cancelTimeout();
        forget();
        stop();
      };
      const fail = (error: unknown): void => {
        over();
        reject(error);
      };
      const cancelTimeout = timeoutMs === undefined ? () => undefined : systemClock.after(timeoutMs, () => fail(new OutcomeTimeout(`run ${watcher.run} has no outcome after ${timeoutMs} ms; it goes on`)));
      let stop: () => void = () => undefined;
      let forget: () => void = () => undefined;
      let ended = false;
      forget = watcher.whenEnded((end) => {
        ended = true;
        cancelTimeout();
        stop();
        resolve(end);
      });
      if (!ended) stop = look(fail);
    });
  }

  /** Follows a run that was just started; one that turns out to be older is looked for from the beginning. */
  #lookAhead(watcher: EndWatcher, fail: (error: unknown) => void): () => void {
    let stopBack: () => void = () => undefined;
    let cancelOlder: () => void = () => undefined;
    let stopped = false;
    const older = (): void => {
      if (!watcher.begun) stopBack = this.#lookBack(watcher, fail);
    };
    const stopAhead = keepOpen({
      open: async () => {
        const reader = await this.#live.pin(watcher);
        await reader.caughtUp;
        if (!stopped && !watcher.begun) cancelOlder = systemClock.after(OLDER_AFTER_MS, older);
      },
      close: () => Promise.resolve(), // Others may follow by the same reader.
      wanted: () => !this.#closed,
      fail,
    });
    return () => {
      stopped = true;
      stopAhead();
      cancelOlder();
      stopBack();
      if (!watcher.waited) this.#live.unpin(watcher);
    };
  }

  #lookBack(watcher: EndWatcher, fail: (error: unknown) => void): () => void {
    return keepOpen({
      open: (onError) => this.#stream(watcher.run, 'beginning', (record) => watcher.tell(record), onError),
      close: (stream) => this.#close(stream),
      wanted: () => !this.#closed,
      fail,
    });
  }

  async *#events(id: RunId): AsyncGenerator<RunEventRecord, void, undefined> {
    const queue: RunEventRecord[] = [];
    let wake: () => void = () => undefined;
    let broken: Error | undefined;
    const stream = await this.#stream(
      id,
      'beginning',
      (record) => {
        queue.push(record);
        wake();
      },
      (error) => {
        broken = error;
        wake();
      },
    );
    try {
      for (;;) {
        const next = queue.shift();
        if (next !== undefined) {
          yield next;
          if (next.event.type === 'RunFinished') return;
        } else if (broken !== undefined) {
          throw broken;
        } else {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
      }
    } finally {
      await this.#close(stream);
    }
  }

  async #stream(run: RunId, from: Parameters<typeof streamOf>[0]['from'], onEvent: (record: RunEventRecord) => void, onError: (error: Error) => void): Promise<RunStream> {
    const stream = await streamOf({ log: this.log, run, tenant: this.tenant, from, onEvent, onError });
    this.#streams.add(stream);
    return stream;
  }

  async #close(stream: RunStream): Promise<void> {
    if (this.#streams.delete(stream)) await stream.close();
  }

  #start(id: RunId, agent: Named | null, input: Json, options: StartOptions): Promise<number | null> {
    const { pool, goal, success, principal, deadline, onDeadline, budgets, concurrencyKey, onConcurrent, priority, queueMs } = options;
    const data = {
      agent,
      input,
      ...(pool === undefined ? {} : { pool: parsed(Pool, pool, 'pool') }),
      ...(goal === undefined ? {} : { goal }),
      ...(success === undefined ? {} : { success: [...success] }),
      ...(principal === undefined ? {} : { principal }),
      ...(deadline === undefined ? {} : { deadline: momentOf(typeof deadline === 'string' ? deadline : { until: deadline }, Date.now(), 'deadline') }),
      ...(onDeadline === undefined ? {} : { onDeadline: onDeadlineOf(onDeadline) }),
      ...(budgets === undefined ? {} : { budgets }),
      ...(concurrencyKey === undefined ? {} : { concurrencyKey }),
      ...(onConcurrent === undefined ? {} : { onConcurrent }),
      ...(priority === undefined ? {} : { priority }),
      ...(queueMs === undefined ? {} : { queueMs }),
    };
    return this.#publish(id, StartRun(parsed(StartRun.schema, data, `the start of run ${id}`)));
  }

  /** Written again while the broker's word is missing: every intent has a natural key, so twice is once. Resolves with the offset of the last. */
  async #publish(run: RunId, message: Message): Promise<number | null> {
    const value = JSON.stringify(message.data);
    const bytes = Buffer.byteLength(value);
    if (bytes > VALUE_BYTES_MAX) throw new ValueTooLarge(message.type, bytes, VALUE_BYTES_MAX, 'store the large part as an artifact and pass the reference');
    this.#sent += 1;
    const headers = encodeHeaders({ id: `${this.#source}/${this.#sent}`, type: message.type, source: this.#source, subject: run, time: Date.now(), tenant: this.tenant });
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.log.publish({ topic: topics.agentIntents, key: run, headers, value });
      } catch (error) {
        if (tries >= PUBLISHES_MAX || isRefusal(error)) throw error;
        await new Promise((resolve) => {
          setTimeout(resolve, PUBLISH_FIRST_MS * 2 ** (tries - 1));
        });
      }
    }
  }
}

function payloadOf(given: Json, what: string): Json {
  const { value, bytes } = toJson(given, what);
  if (bytes > INLINE_BYTES_MAX) throw new ValueTooLarge(what, bytes, INLINE_BYTES_MAX, 'store the large part as an artifact and pass the reference');
  return value;
}

function parsed<Schema extends z.ZodType>(schema: Schema, value: unknown, what: string): z.output<Schema> {
  const result = schema.safeParse(value);
  if (!result.success) throw new InvalidArguments(`${what}: ${describeIssues(result.error)}`);
  return result.data;
}
