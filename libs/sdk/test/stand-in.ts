import {
  decoder,
  Fence,
  intentMessages,
  operationKey,
  parseJson,
  RunId,
  Tenant,
  WorkerId,
  type HistoryStep,
  type Json,
  type Message,
  type MessageOf,
  type Named,
  type Outcome,
  type Report,
  type RequestedCall,
  type Step,
  type ToolContract,
  type WaitEnd,
} from '@holdfast/protocol';
import { unreachable } from '@holdfast/kernel';
import { createHash } from 'node:crypto';
import type { AgentDefinition } from '../src/define/agent.js';
import type { ToolDefinition } from '../src/define/tool.js';
import { Failed, Rejected } from '../src/errors.js';
import type { LocalCall, RunPort } from '../src/host/port.js';
import { RunExecutor, type CallbackSettings, type Grant, type RunArtifacts } from '../src/run/index.js';

type Intent = MessageOf<(typeof intentMessages)[number]>;
type CallStep = Extract<HistoryStep, { kind: 'call' }>;
type WaitStep = Extract<HistoryStep, { kind: 'wait' }>;

export const run = RunId.parse('run-1');
export const tenant = Tenant.parse('default');
const at = 1_700_000_000_000;

export interface StandInOptions {
  readonly tools: readonly ToolDefinition[];
  /** Names of tools that live in another worker. */
  readonly elsewhere?: readonly string[];
  /** Picks which of the things due happens next; absent: in order. */
  readonly pick?: (count: number) => number;
  /** After so many messages the worker is gone: nothing more is written, acknowledged or told. */
  readonly crashAfter?: number;
  readonly refuse?: (intent: Intent) => string | undefined;
  /** Whether the record of a refusal keeps the order that the refused intent told. */
  readonly refusalKeepsOrder?: boolean;
  /** What the ledger says of a granted call; absent: what the tool does. */
  readonly granted?: (call: RequestedCall) => Outcome | undefined;
  /** Whether the own host's report reaches the run before the ledger's word. */
  readonly seen?: boolean;
  readonly triesMax?: number;
  /** How long after the beginning of time a failed try may be repeated. Timers here are as early as can be. */
  readonly pauseMs?: number;
  /** How a wait ends by itself; absent: as the test says. */
  readonly ends?: (wait: WaitStep) => WaitEnd | undefined;
  readonly callbacks?: CallbackSettings;
}

/** As much of orchestrator, ledger and tool host as a run's executor can tell from the real ones. */
export class StandIn implements RunPort {
  readonly messages: Intent[] = [];
  readonly produces: Intent[][] = [];
  readonly steps = new Map<Step, HistoryStep>();
  observed: Step[] = [];
  readonly fired: { readonly step: Step; readonly attempt: number; readonly args: Json; readonly key: string; readonly recordedBefore: boolean }[] = [];
  ending: MessageOf<typeof import('@holdfast/protocol').FinishRun>['data']['ending'] | null = null;
  divergence: { step: Step; recorded: string; asked: string } | null = null;
  readonly troubles: string[] = [];
  fence = Fence.parse(1);
  executor: RunExecutor | null = null;
  crashed = false;
  /** Nobody holds the run: it was let go until one of its waits ends. */
  released = false;
  #regrant: () => void = () => undefined;
  #released = false;
  /** What really happened, by operation key: the world remembers it, whoever died. */
  readonly #ends = new Map<string, Outcome>();
  #due: (() => void)[] = [];
  #pumping = false;
  #ids = 0;
  #options: StandInOptions;

  constructor(options: StandInOptions) {
    this.#options = options;
  }

  /** Starts the agent under a fresh grant of all that is recorded, and waits until the worker is done with it. */
  async execute(agent: AgentDefinition, input: Json = null, more: Partial<StandInOptions> & { artifacts?: RunArtifacts } = {}): Promise<RunExecutor> {
    this.#options = { ...this.#options, ...more };
    let executor: RunExecutor | null = null;
    for (let next = this.begin(agent, input, more.artifacts); next !== executor; next = this.executor ?? next) {
      executor = next;
      await Promise.race([executor.finished, this.quiet()]);
      // A wait may have an end by now, and the run be granted again.
      if (executor.state === 'released') await this.quiet();
    }
    if (executor === null) throw new Error('nothing was executed');
    return executor;
  }

  begin(agent: AgentDefinition, input: Json = null, artifacts?: RunArtifacts): RunExecutor {
    this.crashed = false;
    this.released = false;
    this.#regrant = () => {
      this.fence = Fence.parse(this.fence + 1);
      this.#released = true; // The ledger and the clocks have not stopped meanwhile.
      this.begin(agent, input, artifacts);
    };
    const { tools, callbacks } = this.#options;
    const executor = new RunExecutor({ grant: this.grant(agent, input), agent, tools, callbacks, port: this, artifacts, onTrouble: (message) => this.troubles.push(message) });
    this.executor = executor;
    executor.start();
    if (this.fence > 1 && !this.#released) this.#carryOn();
    this.#released = false;
    return executor;
  }

  /** The ledger outlives the worker: what it granted and nobody reported is settled, by evidence where it fired. */
  #carryOn(): void {
    for (const step of this.steps.values()) {
      if (step.kind === 'wait') this.#foresee(step);
      if (step.kind !== 'call' || step.fire !== 'granted' || step.outcome !== undefined) continue;
      const end = this.#ends.get(step.call.key);
      this.soon(() => (end === undefined ? this.#dispatch(step.call, step.attempt) : this.settle(step.call.step, step.attempt, end)));
    }
  }

  grant(agent: Named, input: Json): Grant {
    const steps = [...this.steps.values()].map((step) =>
      step.kind === 'call' && step.fire === 'local' && step.outcome === undefined && this.fence > 1 ? { ...step, attempt: step.attempt + 1 } : step,
    );
    const text = JSON.stringify({ run, fence: this.fence, tenant, agent: { name: agent.name, version: agent.version }, input, steps, observed: this.observed });
    return JSON.parse(text) as Grant;
  }

  /** The worker is lost: what it had in hand never happens. The next one gets a higher fence. */
  crash(): void {
    this.crashed = true;
    this.#due = [];
    this.executor?.abandon('lost');
    this.fence = Fence.parse(this.fence + 1);
  }

  /** Resolves when nothing is due and nothing happens any more. */
  async quiet(): Promise<void> {
    // A replay hands over one completion a turn and says nothing meanwhile.
    for (let still = 0, before = -1; still < 10 + this.steps.size * 2; ) {
      await turn();
      const now = this.messages.length + this.fired.length;
      still = this.#due.length === 0 && now === before ? still + 1 : 0;
      before = now;
    }
  }

  // ---- RunPort

  intend(_run: RunId, _tenant: Tenant, intents: readonly Message[]): Promise<void> {
    // Text at once, as the outbox does it: what happens to the data later changes nothing.
    const sent = JSON.parse(JSON.stringify(intents)) as Intent[];
    const room = (this.#options.crashAfter ?? Infinity) - this.messages.length;
    if (this.crashed) return new Promise(() => undefined);
    this.produces.push(sent.slice(0, room));
    for (const intent of sent.slice(0, room)) {
      this.messages.push(intent);
      this.#decide(intent);
    }
    if (sent.length > room) {
      this.crash();
      return new Promise(() => undefined);
    }
    return new Promise((resolve) =>
      this.soon(() => {
        resolve();
        if (this.ending !== null && sent.some(({ type }) => type === 'FinishRun')) this.soon(() => this.#ear().dropped('it has ended'));
      }),
    );
  }

  hosted(name: string, version: string): ToolDefinition | undefined {
    if (this.#options.elsewhere?.includes(name) === true) return undefined;
    return this.#tool(name, version);
  }

  fireLocal(call: LocalCall): Promise<Report | 'lease_lost'> {
    return new Promise((resolve) => {
      this.soon(() => {
        void this.#attempt(call.tool, call.step, call.attempt, call.operationKey, call.args).then((outcome) => {
          this.soon(() => resolve({ step: call.step, attempt: call.attempt, outcome }));
        });
      });
    });
  }

  now = (): number => at + (this.#ids += 1);
  random = (): number => createHash('sha256').update(String((this.#ids += 1))).digest().readUInt32BE(0) / 2 ** 32;
  uuid = (): string => `uuid-${(this.#ids += 1)}`;

  after(_delayMs: number, callback: () => void): () => void {
    let cancelled = false;
    this.soon(() => cancelled || callback());
    return () => {
      cancelled = true;
    };
  }

  /** Makes something happen in a macrotask of its own. */
  soon(action: () => void): void {
    if (this.crashed) return;
    this.#due.push(action);
    if (this.#pumping) return;
    this.#pumping = true;
    setImmediate(this.#pump);
  }

  readonly #pump = (): void => {
    const index = this.#due.length < 2 ? 0 : (this.#options.pick?.(this.#due.length) ?? 0);
    const [action] = this.#due.splice(index, 1);
    action?.();
    if (this.#due.length > 0) setImmediate(this.#pump);
    else this.#pumping = false;
  };

  // ---- what the services would do

  #decide(intent: Intent): void {
    const data = intent.data;
    const step = 'step' in data ? data.step : undefined;
    const reason = this.#options.refuse?.(intent);
    if ('settles' in data) for (const report of data.settles ?? []) this.#report(report);
    // No fence refuses a report.
    if (this.released && intent.type !== 'ReportSteps') return this.#refuse({ intent: intent.type, step, reason: 'stale_fence', message: 'nobody holds the run' });
    // What time has overtaken is ignored, with the order that it tells.
    const told = 'observed' in data && intent.type !== 'ReportSteps' && !this.#overtaken(intent) ? (data.observed ?? []) : [];
    if (reason === undefined || this.#options.refusalKeepsOrder === true) this.observed.push(...told);
    if (reason !== undefined) return this.#refuse({ intent: intent.type, step, reason, message: 'refused by the test' });
    switch (intent.type) {
      case 'CallTool':
        return this.#request(intent.data.step, intent.data.tool, intent.data.args, intent.data.target, intent.data.fire ?? 'granted');
      case 'CallGroup':
        for (const call of intent.data.calls) this.#request(call.step, call.tool, call.args, call.target, 'local', intent.data.step);
        return;
      case 'RecordStep':
        if (this.steps.has(intent.data.step) && this.steps.get(intent.data.step)?.kind === 'record') throw new Error(`step ${intent.data.step} recorded twice`);
        this.steps.set(intent.data.step, { kind: 'record', step: intent.data.step, as: intent.data.kind, name: intent.data.name, result: intent.data.result });
        return;
      case 'ReportTry': {
        const { attempt, failure, kind, name } = intent.data;
        const retryAt = attempt >= (this.#options.triesMax ?? 3) || failure.class !== 'transient' ? null : at + (this.#options.pauseMs ?? 0);
        this.steps.set(intent.data.step, { kind: 'try', step: intent.data.step, as: kind, name, attempt, failure, retryAt });
        return this.soon(() => this.#ear().tryAnswered({ step: intent.data.step, attempt, retryAt }));
      }
      case 'FinishRun':
        return this.#finish(intent.data.ending);
      case 'ReportDivergence':
        this.divergence = intent.data;
        return;
      case 'StartWait': {
        const { wait } = intent.data;
        const started: WaitStep = { kind: 'wait', step: intent.data.step, wait };
        if (this.steps.has(started.step)) throw new Error(`step ${started.step} waited for twice`);
        this.steps.set(started.step, started);
        return this.#foresee(started);
      }
      case 'AbandonWait': {
        const known = this.steps.get(intent.data.step);
        if (known?.kind === 'wait' && known.end === undefined) this.steps.set(known.step, { ...known, abandoned: true });
        return;
      }
      case 'ReleaseRun':
        if (this.#overtaken(intent)) return;
        this.released = true;
        return this.soon(() => this.#ear().dropped('it waits'));
      case 'ReportSteps':
      case 'StartRun':
      case 'AnnounceLane':
      case 'SignalRun':
      case 'DeliverCallback':
      case 'ReportChild':
      case 'AdmitRun':
      case 'StartFork':
      case 'CopySteps':
        return;
      default:
        return unreachable(intent);
    }
  }

  #isOpen(step: Step): boolean {
    const known = this.steps.get(step);
    return known?.kind === 'wait' && known.end === undefined && known.abandoned !== true;
  }

  #overtaken(intent: Intent): boolean {
    if (intent.type === 'AbandonWait') return !this.#isOpen(intent.data.step);
    return intent.type === 'ReleaseRun' && !intent.data.waits.every((step) => this.#isOpen(step));
  }

  #foresee(wait: WaitStep): void {
    const end = this.#isOpen(wait.step) ? this.#options.ends?.(wait) : undefined;
    if (end !== undefined) this.soon(() => this.endWait(wait.step, end));
  }

  /** A wait ends: whoever holds the run is told, and one that was let go is granted again. */
  endWait(step: Step, end: WaitEnd): void {
    const known = this.steps.get(step);
    if (known?.kind !== 'wait' || !this.#isOpen(step)) return;
    this.steps.set(step, { ...known, end });
    if (!this.released) return this.#ear().waitEnded(JSON.parse(JSON.stringify({ step, end })) as { step: Step; end: WaitEnd });
    this.released = false;
    // Only once the worker has heard that it is let go.
    const regrant = (): void => (['released', 'abandoned'].includes(this.#ear().state) ? this.#regrant() : this.soon(regrant));
    this.soon(regrant);
  }

  /** As a host does it: a refusal is told under the grant whose intent it refuses, and to no later one. */
  #refuse(refusal: Parameters<RunExecutor['refused']>[0]): void {
    const { fence } = this;
    this.soon(() => {
      if (this.fence === fence) this.#ear().refused(refusal);
    });
  }

  #finish(ending: NonNullable<StandIn['ending']>): void {
    const open = [...this.steps.values()].filter((step): step is CallStep => step.kind === 'call' && (step.outcome === undefined || step.outcome.status === 'unknown'));
    const unknown = open.some(({ outcome }) => outcome !== undefined);
    if (ending.status === 'completed' && open.length > 0) {
      return this.#refuse({ intent: 'FinishRun', reason: unknown ? 'outcome_unknown' : 'steps_open', message: 'refused by the test' });
    }
    this.ending = ending;
  }

  #request(step: Step, tool: Named, args: Json, target: string | undefined, fire: 'local' | 'granted', group?: Step): void {
    if (this.steps.has(step)) return;
    const contract = this.#tool(tool.name, tool.version);
    const key = operationKey({ scope: 'run', tenant, run, step, tool: tool.name, target: target ?? null });
    const effect: ToolContract['effect'] = contract?.effect ?? 'irreversible';
    const call: RequestedCall = { step, tool, effect, keyScope: 'run', args, ...(target === undefined ? {} : { target }), key, digest: '0'.repeat(64) as RequestedCall['digest'], digestVersion: 1 };
    this.steps.set(step, { kind: 'call', call, fire, attempt: 1, ...(group === undefined ? {} : { group }) });
    if (fire === 'granted') this.soon(() => this.#dispatch(call, 1));
  }

  /** The ledger grants an attempt; its end is the run's to hear. */
  #dispatch(call: RequestedCall, attempt: number): void {
    const told = this.#options.granted?.(call);
    const tool = this.#tool(call.tool.name, call.tool.version);
    if (told === undefined && tool === undefined) return;
    const end = told === undefined && tool !== undefined ? this.#attempt(tool, call.step, attempt, call.key, call.args) : Promise.resolve(told as Outcome);
    void end.then((outcome) => {
      this.soon(() => {
        // Of a run that was let go nobody hears but the ledger.
        if (this.#options.seen === true && outcome.status === 'succeeded' && this.#ear().state !== 'released') return this.#ear().seen({ step: call.step, attempt, outcome });
        if (this.#again(outcome, attempt, call.effect)) return this.#dispatch(call, attempt + 1);
        this.settle(call.step, attempt, outcome);
      });
    });
  }

  /** The ledger's word. */
  settle(step: Step, attempt: number, outcome: Outcome): void {
    const known = this.steps.get(step);
    if (known?.kind !== 'call' || (known.outcome !== undefined && known.outcome.status !== 'unknown')) return;
    this.steps.set(step, { ...known, attempt, outcome });
    this.#ear().settled(JSON.parse(JSON.stringify({ step, attempt, outcome })) as Report);
  }

  #report(report: Report): void {
    const known = this.steps.get(report.step);
    if (known?.kind !== 'call' || known.outcome !== undefined) return;
    if (report.outcome.status === 'succeeded') {
      this.steps.set(report.step, { ...known, attempt: report.attempt, outcome: report.outcome });
    } else if (known.fire === 'local' && report.outcome.status !== 'unknown') {
      const again = this.#again(report.outcome, report.attempt, known.call.effect);
      this.soon(() => (again ? this.#dispatch(known.call, report.attempt + 1) : this.settle(report.step, report.attempt, report.outcome)));
    }
  }

  #again(outcome: Outcome, attempt: number, effect: ToolContract['effect']): boolean {
    return outcome.status === 'failed' && outcome.failure.class === 'transient' && effect !== 'irreversible' && attempt < (this.#options.triesMax ?? 3);
  }

  async #attempt(tool: ToolDefinition, step: Step, attempt: number, key: string, args: Json): Promise<Outcome> {
    const outcome = await this.#execute(tool, step, attempt, key, args);
    this.#ends.set(key, outcome);
    return outcome;
  }

  async #execute(tool: ToolDefinition, step: Step, attempt: number, key: string, args: Json): Promise<Outcome> {
    const known = this.steps.get(step);
    this.fired.push({ step, attempt, args, key, recordedBefore: known?.kind === 'call' && known.outcome?.status === 'succeeded' });
    const evidence = { kind: 'receipt' } as const;
    try {
      const context = { operationKey: key, attempt, fence: this.fence, deadline: at, signal: new AbortController().signal, heartbeat: () => undefined, run, step };
      const result = await tool.execute(tool.input.parse(args), context as never);
      return { status: 'succeeded', result: { value: tool.output.parse(result) as Json }, evidence };
    } catch (error) {
      if (error instanceof Rejected) return { status: 'rejected', reason: error.reason, evidence };
      if (error instanceof Failed) return { status: 'failed', failure: error.failure, evidence };
      if (tool.effect === 'irreversible') return { status: 'unknown', cause: 'may_have_applied', message: String(error) };
      return { status: 'failed', failure: { class: 'transient', message: String(error) }, evidence };
    }
  }

  #tool(name: string, version: string): ToolDefinition | undefined {
    return this.#options.tools.find((tool) => tool.name === name && tool.version === version);
  }

  #ear(): RunExecutor {
    if (this.executor === null) throw new Error('nobody executes the run');
    return this.executor;
  }
}

const read = decoder(intentMessages);
/** What of a run's intents its readers would refuse: a wish that nobody hears of. */
export const unreadable = (messages: readonly Intent[]): string[] =>
  messages.flatMap(({ type, data }) => {
    const parsed = parseJson(JSON.stringify(data));
    const decoded = parsed.ok ? read(type, parsed.value) : parsed;
    return decoded.ok ? [] : [decoded.message];
  });

export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
export const worker = WorkerId.parse('worker-1');

/** Types and steps of what was sent, in order: `CallTool 1`. */
export const names = (messages: readonly Intent[]): string[] => messages.map(({ type, data }) => ('step' in data ? `${type} ${data.step}` : type));
