import { fileURLToPath } from 'node:url';
import path from 'node:path';
import { LOCAL_SESSION_TIMEOUT_MS, ManagedProcess } from '@holdfast/deploy';
import { topics, type Json } from '@holdfast/protocol';
import { eventually } from '../support/eventually.js';
import { SERVICES, TestStack, type ServiceName } from '../support/stack.js';
import { Caller } from './caller.js';
import type { Victim, Waits } from './cells.js';
import { Copier } from './delivery.js';
import { Sink } from './sink.js';

const unseen: RunView = { endedAt: null, ending: null, blocked: false, standing: null };

const WORKER = fileURLToPath(new URL('../../dist/matrix/matrix-worker.js', import.meta.url));
const SERVICE = (name: ServiceName): string => fileURLToPath(new URL(`../../../services/${name}/dist/main.js`, import.meta.url));

/** A run of the worker's only agent: so many calls of one tool. */
export interface RunPlan {
  readonly run: string;
  readonly tool: string;
  readonly steps: number;
  readonly doubt?: boolean;
  /** It fails after its calls, and each is answered; `doubt` is then of the first answer. */
  readonly back?: boolean;
  readonly ms?: number;
  readonly gate?: string;
  /** Bytes that its arguments carry about, in hexadecimal. */
  readonly pad?: string;
  /** It records work, calls, waits for a signal and an approval, and calls again; or is cancelled while it waits for the signal. */
  readonly waits?: Waits | null;
  /** It sleeps before its calls, milliseconds. */
  readonly nap?: number;
  /** All that is asked of it goes through the gateway. */
  readonly called?: boolean;
}

/** What the worker's agent is told. */
const inputOf = ({ tool, steps, doubt = false, back = false, ms = 0, gate, pad = '', waits = null, nap = 0 }: RunPlan): Json => ({ tool, steps, doubt, back, ms, gate: gate ?? null, pad, waits, nap });

/** The steps at which a run calls the world. */
export function callsOf({ steps, waits = null }: RunPlan): readonly number[] {
  switch (waits) {
    case null:
      return Array.from({ length: steps }, (_, n) => n + 1);
    case 'answered':
      return [2, 5];
    case 'cancelled':
      return [2];
  }
}

export interface RunView {
  /** Epoch milliseconds, when we heard of it. */
  endedAt: number | null;
  ending: Json;
  /** It stands before an unknown outcome. */
  blocked: boolean;
  /** What its latest plan came to, and how each effect stands by it. */
  standing: { readonly status: string; readonly effects: readonly { readonly step: string; readonly standing: string }[] } | null;
}

export interface GroundOptions {
  readonly say: (line: string) => void;
  /** Asks for a clean end: every wait is given up. */
  readonly signal: AbortSignal;
}

export class Interrupted extends Error {
  override readonly name = 'Interrupted';
}

/** One real stack with one worker, the world that it changes, and what is seen of its runs. */
export class Ground {
  readonly #views = new Map<string, RunView>();
  readonly #extra: ManagedProcess[] = [];
  /** What people have sent, by run and wait. */
  readonly #attended = new Set<string>();
  #caller: Promise<Caller> | undefined;
  /** Requests under way. */
  readonly #asking = new Set<Promise<unknown>>();
  #scanned = 0;
  #workers = 0;

  private constructor(
    readonly stack: TestStack,
    readonly sink: Sink,
    readonly options: GroundOptions,
  ) {}

  worker!: ManagedProcess;
  copier!: Copier;

  static async open(options: GroundOptions): Promise<Ground> {
    const sink = await Sink.open();
    const stack = await TestStack.start({ ownServers: true }).catch(async (error: unknown) => {
      await sink.close();
      throw error;
    });
    const ground = new Ground(stack, sink, options);
    try {
      ground.worker = await ground.startWorker('matrix');
      ground.copier = await Copier.open(stack);
      await ground.until('every lane is taken', () => stack.lanes.every((lane) => stack.events(`~lane/default/${lane}`).length > 0));
      return ground;
    } catch (error) {
      await ground.close();
      throw error;
    }
  }

  /** Of a gateway, which is there once it is asked for. */
  caller(): Promise<Caller> {
    return (this.#caller ??= Caller.open(this.stack, this.options.signal));
  }

  async close(): Promise<void> {
    await (await this.#caller?.catch(() => undefined))?.close().catch(() => undefined);
    await this.copier?.close().catch(() => undefined);
    await Promise.all(this.#extra.map(async (each) => {
      if (each.pid !== undefined) await each.kill();
    }));
    await this.stack.stop();
    await this.sink.close();
  }

  async victim(name: Victim): Promise<ManagedProcess> {
    if (name === 'gateway') return (await this.caller()).gateway.process;
    return name === 'worker' ? this.worker : this.stack.service(name);
  }

  get processes(): ManagedProcess[] {
    return [...SERVICES.map((name) => this.stack.service(name)), this.worker];
  }

  /** Another worker under a name of its own, or the same. */
  async startWorker(name: string): Promise<ManagedProcess> {
    this.#workers += 1;
    return this.#start(`worker-${this.#workers}`, WORKER, { MATRIX_SINK: this.sink.url, MATRIX_WORKER: name });
  }

  /** A second instance of a service, to take over from the first. */
  startInstance(service: ServiceName): Promise<ManagedProcess> {
    const name = `${service}-more-${this.#extra.length}`;
    return this.#start(name, SERVICE(service), { HOLDFAST_INSTANCE: name });
  }

  async #start(name: string, entry: string, env: NodeJS.ProcessEnv): Promise<ManagedProcess> {
    const { stack } = this.stack;
    const made = new ManagedProcess({ name, entry, dir: path.join(stack.dir, 'matrix'), env: { ...stack.env, HOLDFAST_SESSION_TIMEOUT_MS: String(LOCAL_SESSION_TIMEOUT_MS), ...env } });
    this.#extra.push(made);
    await made.start();
    return made;
  }

  /** Asks for runs: all in one produce, or each by a request. */
  async begin(plans: readonly RunPlan[]): Promise<void> {
    const messages = plans.flatMap(({ called = false, ...plan }) => (called ? [] : [{ key: plan.run, headers: { ce_type: 'StartRun' }, value: JSON.stringify({ agent: { name: 'cell', version: '1' }, input: inputOf(plan) }) }]));
    if (messages.length > 0) await this.stack.producer.send({ topic: topics.agentIntents, acks: -1, messages });
    await Promise.all(plans.filter(({ called = false }) => called).map(async (plan) => (await this.caller()).start(plan.run, inputOf(plan))));
  }

  /** Does once what runs wait for: signals them, approves, or cancels those that are to be. */
  async attend(plans: readonly RunPlan[]): Promise<void> {
    const by = { name: 'kate', roles: ['operator'] };
    for (const { run, waits = null, called = false } of plans) {
      if (waits === null) continue;
      for (const { envelope, data } of this.stack.events(run)) {
        const { step, wait } = data as { step?: string; wait?: { kind: string } };
        if (envelope.type !== 'WaitStarted' || step === undefined || this.#attended.has(`${run}/${step}`)) continue;
        this.#attended.add(`${run}/${step}`);
        if (called) {
          this.#ask(run, step, waits, wait?.kind);
          continue;
        }
        const command = (type: string, more: Json): Promise<unknown> => this.stack.send({ topic: topics.operatorCommands, key: run, type, value: JSON.stringify({ command: `${type} ${step}`, by, ...(more as object) }) });
        if (waits === 'cancelled') await command('CancelRun', { reason: 'as planned', scope: 'run', manner: 'immediate' });
        else if (wait?.kind === 'approval') await command('DecideApproval', { step, decision: 'approve' });
        else await this.stack.intent(run, 'SignalRun', { signal: `go ${step}`, name: 'go', payload: 'go' });
      }
    }
  }

  /** The same by a request, whose answer may be long in coming. */
  #ask(run: string, step: string, waits: Waits, kind: string | undefined): void {
    const asking = this.caller().then((caller) => (waits === 'cancelled' ? caller.cancel(run) : kind === 'approval' ? caller.approve(run, step) : caller.tell(run, 'go', 'go')));
    this.#asking.add(asking.finally(() => this.#asking.delete(asking)));
  }

  /** What is wrong with what the gateway answered, showed and told of a run that was asked of it, where that has ended. */
  async calledFaults(plan: RunPlan): Promise<readonly string[]> {
    const { run, waits = null, called = false } = plan;
    if (!called || !this.hasEnded(plan)) return [];
    await Promise.all(this.#asking);
    return (await this.caller()).faultsOf(run, waits === 'cancelled' ? 'cancelled' : 'completed');
  }

  view(run: string): RunView {
    const { seen } = this.stack;
    for (; this.#scanned < seen.length; this.#scanned += 1) {
      const record = seen[this.#scanned];
      if (record?.topic !== topics.runEvents) continue;
      const { data, envelope: { type, subject } } = record;
      const view = this.#views.get(subject) ?? { ...unseen };
      this.#views.set(subject, view);
      if (type === 'RunFinished') Object.assign(view, { endedAt: Date.now(), ending: data['ending'] ?? null, blocked: false });
      else if (type === 'RunCompensated') Object.assign(view, { endedAt: Date.now(), standing: data });
      else if (type === 'RunBlocked') view.blocked = true;
      else if (type === 'EffectSettled' || type === 'StepReleased') view.blocked = false;
    }
    return this.#views.get(run) ?? unseen;
  }

  /** Its last word is said: of one that goes back, how all that it did stands. */
  hasEnded({ run, back = false }: RunPlan): boolean {
    const { endedAt, standing } = this.view(run);
    return endedAt !== null && (!back || standing !== null);
  }

  allEnded(plans: readonly RunPlan[]): boolean {
    return plans.every((plan) => this.hasEnded(plan));
  }

  /** Calls of the world so far, of runs whose id begins so. */
  fired(prefix: string): number {
    return this.sink.arrivals.filter(({ run }) => run.startsWith(prefix)).length;
  }

  /** `eventually`, given up at once when an end is asked for. */
  until(what: string, check: () => boolean | Promise<boolean>, withinMs = 60_000): Promise<true> {
    return eventually(
      what,
      () => {
        if (this.options.signal.aborted) throw new Interrupted('asked to end');
        return check();
      },
      withinMs,
    );
  }
}
