import { absent, evolve as evolveRun, unknownSteps, type Run, type RunEvent } from '@holdfast/orchestrator';
import type { RunEffects } from '@holdfast/ledger';
import { topics, type Step } from '@holdfast/protocol';
import { chainHash, type JournalRow, type LogRecord } from '@holdfast/runtime';
import type { Exemption } from './exempt.js';
import { exemptFrom } from './exempt.js';
import { SERVICES, type ServiceKind } from './faults.js';
import { boundIn, dataOf, foldEffects, STREAMS } from './folds.js';
import { isSpent, mayComeTo, overspent } from './judge-budget.js';
import { judgeCases } from './judge-cases.js';
import { HoldJudge } from './judge-hold.js';
import { judgeLife } from './judge-life.js';
import { judgeOnce } from './judge-once.js';
import { PlanJudge } from './judge-plans.js';
import { expected, type Expected } from './oracle.js';
import type { Simulation } from './simulation.js';
import { untaken } from './tasks.js';
import type { Firing } from './world.js';

interface Worded extends Partial<CallWords> {
  readonly kind?: string;
  readonly name?: string;
  readonly result?: unknown;
  readonly call?: CallWords;
  readonly calls?: readonly CallWords[];
}
interface CallWords {
  readonly step: string;
  readonly tool: { readonly name: string };
  readonly args: unknown;
}

/** What an intent, or the event that took it, asks for, without who says it and when. */
function wordsOf({ kind, name, result, call, calls, tool, args }: Worded): string {
  const asked = calls ?? (call !== undefined ? [call] : tool !== undefined ? [{ tool, args }] : []);
  return JSON.stringify([kind, name, result, asked.map((each) => [each.tool.name, each.args])]);
}

/** What the judge looks up while a world runs. */
export class Judge {
  /** Attempts that the ledger has granted, with the time after which they must not fire. */
  readonly #dispatched = new Map<string, number>();
  /** Ends of `tool.results` when the ledger's lane was last taken. */
  readonly #backlog = new Map<number, number>();
  readonly #refired = new Set<string>();
  /** Calls that stand in their run's stream, with the fence under which they were asked for. */
  readonly #accepted = new Set<string>();
  readonly #recorded = new Map<string, string[]>();
  /** What stood recorded in a run's stream when it was granted, by run and fence. */
  readonly #recordedBefore = new Map<string, ReadonlySet<string>>();
  readonly #intended = new Set<string>();
  /** Effects of which a worker has told on the log that they have happened. */
  readonly #told = new Set<string>();
  readonly exempt: Exemption[] = [];
  /** Steps and waits that the runs' streams hold. */
  steps = 0;
  waits = 0;
  readonly #plans: PlanJudge;
  readonly #holds: HoldJudge;

  constructor(private readonly sim: Simulation) {
    const { world } = sim;
    const { databases, log } = sim.cluster;
    this.#holds = new HoldJudge(log, (invariant, what) => this.#violated(invariant, what));
    const { onCommit: noteRun } = databases.orchestrator;
    databases.orchestrator.onCommit = (rows) => {
      noteRun(rows);
      for (const row of rows) this.#runRow(row);
    };
    const { onCommit: noteEffect } = databases.ledger;
    databases.ledger.onCommit = (rows) => {
      noteEffect(rows);
      for (const row of rows) this.#effectRow(row);
    };
    this.#plans = new PlanJudge((invariant, what) => this.#violated(invariant, what), world, (run) => foldEffects(databases.ledger.stream(topics.effectEvents, run)));
    const { onCommit: notePlan } = databases.compensation;
    databases.compensation.onCommit = (rows) => {
      notePlan(rows);
      for (const row of rows) this.#plans.row(row);
    };
    databases.ledger.onTake = (lanes) => {
      for (const lane of lanes) this.#backlog.set(lane, log.lane(topics.toolResults, lane).length);
    };
    judgeOnce(sim.cluster.core);
    log.watch((record) => this.#intent(record));
    sim.onWork = (fence, run, what) => this.#work(fence, run, what);
    world.onFiring = (firing) => this.#firing(firing);
  }

  #runRow(row: JournalRow): void {
    const { type, stream } = row;
    this.#holds.row(row);
    if (type === 'RunResumed') {
      const { refired } = dataOf(row) as { refired: { step: string; attempt: number }[] };
      for (const { step, attempt } of refired) this.#refired.add(`${stream}/${step}/${attempt}`);
      const { lease } = dataOf(row) as { lease: { fence: number } };
      this.#recordedBefore.set(`${stream}/${lease.fence}`, new Set(this.#recorded.get(stream)));
    }
    if (type === 'EffectRequested' || type === 'GroupRequested') {
      const { call, calls = [], fence = 0 } = dataOf(row) as { call?: { step: string }; calls?: { step: string }[]; fence?: number };
      for (const { step } of call === undefined ? calls : [call]) this.#accepted.add(`${stream}/${step}/${fence}`);
    }
    if (type === 'StepRecorded') {
      const { name } = dataOf(row) as { name: string };
      this.#recorded.set(stream, [...(this.#recorded.get(stream) ?? []), name]);
    }
  }

  #effectRow(row: JournalRow): void {
    if (row.type === 'EffectDispatched') this.#dispatch(row);
    if (row.type !== 'EffectRetryScheduled' && row.type !== 'EffectOutcomeUnknown') return;
    const { step, attempt, message = '', because = '' } = dataOf(row) as { step: string; attempt: number; message?: string; because?: string };
    if (!`${message}${because}`.includes('reported no end by its deadline')) return;
    const told = this.sim.cluster.log.lane(topics.toolResults, row.lane).slice(0, this.#backlog.get(row.lane) ?? 0);
    if (told.some(({ key, headers, value }) => key === row.stream && headers['ce_type'] === 'EffectReported' && reports(value, step, attempt))) this.#violated('I5', `${row.stream}/${step} attempt ${attempt} was given up though its end stood on the log when the lane was taken`);
  }

  #dispatch(row: JournalRow): void {
    const { stream } = row;
    const { step, attempt, because, notAfter } = dataOf(row) as { step: string; attempt: number; because: string; notAfter: number };
    if (because === '') this.#violated('I12', `${stream}/${step} attempt ${attempt} was dispatched without a reason`);
    this.#dispatched.set(`${stream}/${step}/${attempt}`, notAfter);
  }

  #intent({ topic, key, headers, value }: LogRecord): void {
    if (topic !== topics.agentIntents) return;
    const { ce_type: type } = headers;
    const calls = type === 'CallTool' || type === 'CallGroup';
    if (value === null || (!calls && !value.includes('"settles"'))) return;
    const said = JSON.parse(value) as { step: string; calls?: { step: string }[]; settles?: { step: string; outcome: { status: string } }[] };
    for (const { step, outcome } of said.settles ?? []) if (outcome.status === 'succeeded') this.#told.add(`${key ?? ''}/${step}`);
    if (calls) for (const { step } of said.calls ?? [said]) this.#intended.add(`${key ?? ''}/${step}`);
  }

  #violated(invariant: string, what: string): void {
    this.sim.cluster.core.violated(invariant, what);
  }

  /** Asked at each call, before the world answers it. */
  #firing(firing: Firing): void {
    const { run, step, attempt, key, tool, effect } = firing;
    this.#plans.firing(firing);
    const place = `${tool} at ${run}/${step} attempt ${attempt}`;
    const notAfter = this.#dispatched.get(`${run}/${step}/${attempt}`);
    const granted = notAfter !== undefined;
    if (!granted && (effect === 'irreversible' || !this.#intended.has(`${run}/${step}`))) this.#violated('I2', `${place} fired before its intent was durable`);
    if (!granted && attempt > 1 && !this.#refired.has(`${run}/${step}/${attempt}`)) this.#violated('I12', `${place} fired without a recorded decision to try again`);
    const local = (other: Firing): boolean => !this.#dispatched.has(`${other.run}/${other.step}/${other.attempt}`);
    const before = (this.sim.world.byKey.get(key) ?? []).filter((other) => other !== firing);
    // What fired and was refused binds nothing at the target: of local effects I4 holds at the log.
    const stands = (other: Firing): boolean => !local(other) || this.#accepted.has(`${other.run}/${other.step}/${other.fence}`);
    if (before.some((other) => other.args !== firing.args && stands(other))) this.#violated('I4', `${place} fired with other arguments than before`);
    // What was refused after it had fired is asked anew, from its first attempt on.
    const again = granted ? undefined : before.find((other) => other.run === run && other.step === step && other.attempt === attempt && local(other) && this.#accepted.has(`${run}/${step}/${other.fence}`));
    if (again !== undefined) this.#violated('I12', `${place} fired twice under one attempt, on ${again.process} and on ${firing.process}`);
    const { log } = this.sim.cluster;
    const workers = this.sim.cluster.coordinator('holdfast.workers.default');
    if (!granted && workers.isAnothers(log.laneOf(run), firing.process)) this.#violated('I2', `${place} fired on ${firing.process} after its lane had gone to another worker`);
    if (!granted) this.#holds.firing(firing);
    if (effect !== 'irreversible') return;
    if (granted && firing.clock > notAfter) this.#violated('I3', `${place} fired ${firing.clock - notAfter} ms past its notAfter`);
    const same = before.find((other) => other.attempt === attempt && other.run === run);
    if (same !== undefined) this.#violated('I3', `${place} fired twice, on ${same.process} and on ${firing.process}`);
    const unproved = before.find(({ applied, ended, voided }) => applied || (!ended && !voided));
    if (unproved !== undefined) this.#violated('I3', `${place} fired though attempt ${unproved.attempt} ${unproved.applied ? 'took effect' : 'may yet take effect'}`);
  }

  /** Recorded work is done: not where its result stood in the stream when the run was granted. */
  #work(fence: number, run: string, what: string): void {
    if (this.#recordedBefore.get(`${run}/${fence}`)?.has(what) === true) this.#violated('I7', `${what} of ${run} was done again by a worker that had its result`);
  }

  /** The invariants, once the world has come to rest. */
  judge(): void {
    const { sim } = this;
    if (sim.ended === 'late') this.#violated('rest', 'the world came to no rest within its time');
    const { settles } = sim;
    for (const service of SERVICES) if (settles || service === 'orchestrator' || service === 'ledger') this.#streams(service);
    this.#allRead();
    for (const record of sim.cluster.log.topic(topics.deadLetters)) this.#violated('dead letter', record.value ?? '');
    this.#hosts();
    for (const run of sim.options.runs) this.#run(run.id);
  }

  /** I8, I13: what the topic holds is what the journal holds, chained, and folds to what is in memory. */
  #streams(service: ServiceKind): void {
    const { topic, fold } = STREAMS[service];
    const { databases, log, slots } = this.sim.cluster;
    const onTopic = new Map<string, LogRecord[]>();
    const last = new Map<string, number>();
    for (const record of log.topic(topic)) {
      const source = `${String(record.headers['ce_source'])}|${record.lane}`;
      const seq = Number(record.headers['ce_seq']);
      if (seq <= (last.get(source) ?? 0)) continue; // A row published again.
      last.set(source, seq);
      const stream = record.key ?? '';
      const records = onTopic.get(stream);
      if (records === undefined) onTopic.set(stream, [record]);
      else records.push(record);
    }
    for (const [key, rows] of databases[service].streams()) {
      const stream = key.slice(topic.length + 1);
      const records = onTopic.get(stream) ?? [];
      if (records.length !== rows.length) this.#violated('I8', `${stream}: the topic ${topic} holds ${records.length} events, the journal ${rows.length}`);
      let hash = '';
      for (const [index, row] of rows.entries()) {
        const record = records[index];
        hash = chainHash(hash, { ...row, version: index + 1 });
        if (record !== undefined && (record.value !== row.data || record.headers['ce_type'] !== row.type)) this.#violated('I8', `${stream} version ${index + 1}: topic and journal differ`);
        if (hash !== row.hash || (record !== undefined && record.headers['ce_hash'] !== hash)) this.#violated('I13', `${stream} version ${index + 1} doesn't chain`);
      }
      const folded = fold(rows);
      for (const { kind, running } of slots) {
        const held = kind === service && running?.process.alive === true ? running.peek(stream) : undefined;
        // A former holder's memory may be behind; it can't write.
        if (held === undefined || held.version !== rows.length) continue;
        if (text(held.state) !== text(folded)) this.#violated('I8', `${stream}: the state in memory of ${running?.process.name ?? ''} is not the fold of its events`);
      }
    }
  }

  /** I1: everything durable was read and decided. */
  #allRead(): void {
    const { databases, log } = this.sim.cluster;
    const { options } = this.sim;
    for (const service of SERVICES) {
      if ((options.instances[service] ?? 0) === 0) continue;
      for (let lane = 0; lane < options.partitions; lane += 1) {
        for (const topic of STREAMS[service].reads) {
          const end = log.lane(topic, lane).length;
          const read = databases[service].progress.get(lane)?.offsets[topic] ?? 0;
          if (read !== end) this.#violated('I1', `${service} has read ${topic}/${lane} up to ${read}, it ends at ${end}`);
        }
      }
    }
  }

  /** Every irreversible task was taken, and what a living host saw end, it has reported. */
  #hosts(): void {
    const { log, slots } = this.sim.cluster;
    for (const { run, step, attempt } of untaken(this.sim.cluster)) this.#violated('6.1', `the task of ${run}/${step} attempt ${attempt} was never taken`);
    const alive = new Set(slots.flatMap(({ running }) => (running?.process.alive === true ? [running.process.name] : [])));
    const told = new Set(
      log.topic(topics.toolResults).map(({ key, value }) => {
        const { step, attempt } = JSON.parse(value ?? '{}') as { step?: string; attempt?: number };
        return `${key ?? ''}/${step ?? ''}/${attempt ?? ''}`;
      }),
    );
    for (const { effect, ended, process, run, step, attempt } of this.sim.world.firings) {
      if (effect !== 'irreversible' || !ended || !alive.has(process)) continue;
      if (!told.has(`${run}/${step}/${attempt}`)) this.#violated('I5', `${process} saw the end of ${run}/${step} attempt ${attempt} and never reported it`);
    }
  }

  #run(id: string): void {
    const { databases, acknowledged } = this.sim.cluster;
    const { options } = this.sim;
    const rows = databases.orchestrator.stream(topics.runEvents, id);
    const effects = foldEffects(databases.ledger.stream(topics.effectEvents, id));
    if (rows.length === 0) {
      if (acknowledged.has(id)) this.#violated('I1', `${id} was acknowledged and is nowhere`);
      return;
    }
    const run = this.#foldAndWatch(id, rows);
    if (run.status === 'absent' || run.status === 'lane' || run.status === 'brakes') return;
    this.steps += run.steps.size;
    this.waits += [...run.steps.values()].filter(({ kind }) => kind === 'wait').length;
    this.#decidedOnce(id, rows);
    this.#effectsOf(id, effects, run);
    const plan = options.runs.find((one) => one.id === id);
    for (const found of judgeLife({ id, rows, run, effects, inputs: this.sim.people.inputs })) this.#found(found);
    if (this.sim.settles) this.#settling(id, run, effects);
    if (plan === undefined) return;
    // Cancelled as it was asked to be: what stands then is judged above.
    if (run.status === 'ended' && run.ending.status === 'cancelled' && this.sim.people.cancelled.has(id)) return;
    const bound = new Set(rows.flatMap(boundIn));
    const wanted = expected(options.seed, id, plan.program, { settles: this.sim.settles, cancels: (target) => this.#isCancelledAt(target), isBound: (step) => bound.has(step) });
    if (isSpent(rows) && mayComeTo(run, wanted)) return;
    if (wanted.fails) return this.#failed(id, run, wanted);
    const got = run.status === 'ended' && run.ending.status === 'completed' && 'value' in run.ending.output ? (run.ending.output.value as string[]) : null;
    if (wanted.output !== null && got !== null) {
      if (wanted.output.length !== got.length || !wanted.output.every((either, index) => either.split('|').includes(got[index] ?? ''))) this.#violated('equality', `${id} returned ${JSON.stringify(got)}, uninterrupted it returns ${JSON.stringify(wanted.output)}`);
      return this.#happened(id, wanted.applied);
    }
    const unknown = unknownSteps(run);
    if (wanted.output === null && run.status === 'open' && unknown.length > 0) return;
    const exemption = this.sim.settles ? null : exemptFrom(this.sim, id, run, effects);
    if (exemption === null) this.#violated('equality', `${id} is ${run.status === 'ended' ? `${run.status} (${JSON.stringify(run.ending)})` : run.status}; uninterrupted it ${wanted.output === null ? 'is blocked' : `returns ${JSON.stringify(wanted.output)}`}`);
    else this.exempt.push(exemption);
  }

  #isCancelledAt(target: string): boolean {
    return this.sim.options.runs.some(({ id, program }) => this.sim.people.cancelled.has(id) && JSON.stringify(program).includes(`"${target}"`));
  }

  /** What came of its cases and plans. */
  #settling(id: string, run: Run, effects: RunEffects): void {
    const { databases } = this.sim.cluster;
    const { world, desk } = this.sim;
    const sent = (desk?.commands ?? []).filter((command) => command.run === id);
    const said = (about: 'case' | 'plan'): string[] => sent.flatMap((command) => (command.about === about ? [command.id] : []));
    const rows = databases.reconciliation.stream(topics.reconciliationEvents, id);
    for (const found of judgeCases({ id, rows, effectRows: databases.ledger.stream(topics.effectEvents, id), effects, world, commands: said('case') })) this.#found(found);
    this.#plans.judge({ id, rows: databases.compensation.stream(topics.compensationEvents, id), run, world, commands: said('plan') });
  }

  #found(found: string): void {
    this.#violated(found.slice(0, found.indexOf(':')), found.slice(found.indexOf(': ') + 2));
  }

  /** A run whose code ends in failure: what it did stands as it does without an interruption. */
  #failed(id: string, run: Run, { standing, applied }: Expected): void {
    if (run.status !== 'ended' || run.ending.status !== 'failed') return this.#violated('equality', `${id} is ${run.status}; uninterrupted it fails`);
    const stands = new Map(run.compensation?.effects.map((effect) => [effect.step as string, effect.standing]));
    for (const [step, wanted] of standing) if (stands.get(step) !== wanted) this.#violated('equality', `${id}/${step} is ${stands.get(step) ?? 'not spoken of'}; uninterrupted it is ${wanted}`);
    this.#happened(id, applied);
  }

  #happened(id: string, wanted: ReadonlySet<string>): void {
    const applied = new Set(this.sim.world.firings.filter((firing) => firing.applied && firing.effect === 'irreversible').map(({ key }) => key));
    for (const key of wanted) if (!applied.has(key)) this.#violated('equality', `${id} is over, and its effect ${key.slice(0, 8)} never happened`);
  }

  /** Folds a run's events, and looks at each step of the way for what must never be. */
  #foldAndWatch(id: string, rows: readonly JournalRow[]): Run {
    const budgets = this.sim.options.runs.find((one) => one.id === id)?.budgets;
    let run: Run = absent;
    for (const row of rows) {
      const event = { type: row.type, data: dataOf(row) } as RunEvent;
      const { fence, ending } = event.data as { fence?: number; ending?: { status: string } };
      if ('steps' in run && CLAIMS.has(row.type) && ending?.status !== 'cancelled') {
        if (fence !== run.lease?.fence) this.#violated('I6', `${row.type} of ${id} carries fence ${fence ?? 'none'}, the run's is ${run.lease?.fence ?? 'none'}`);
        if (run.status !== 'open') this.#violated('I1', `${row.type} of ${id} came after its end`);
      }
      const before = run;
      run = evolveRun(run, event);
      const spent = 'steps' in before && 'steps' in run ? overspent(budgets, row.type, before, run) : null;
      if (spent !== null) this.#violated('I1', `${id}: ${spent}`);
      if (event.type === 'RunFinished' && event.data.ending.status === 'completed' && 'steps' in run && unknownSteps(run).length > 0) this.#violated('I5', `${id} completed over an unknown outcome`);
      if (event.type === 'RunQuarantined') this.#violated('quarantine', `${id}: ${event.data.message}`);
    }
    return run;
  }

  /** I1: one decision for each step. */
  #decidedOnce(id: string, rows: readonly JournalRow[]): void {
    const decided = new Map<string, number>();
    const taken = new Map<string, string>();
    const refused = new Set<string>();
    for (const row of rows) {
      const { type, lane } = row;
      const parsed = dataOf(row) as Worded & { reason?: string; offset?: number };
      if (type === 'IntentRejected' && parsed.step !== undefined) {
        refused.add(parsed.step);
        const said = this.sim.cluster.log.lane(topics.agentIntents, lane)[parsed.offset ?? -1];
        // Another holder may word it otherwise, in another order or by chance; the same words are a duplicate, whatever their fence.
        if (parsed.reason === 'stale_fence' && said !== undefined && taken.get(parsed.step) === wordsOf(JSON.parse(said.value ?? '') as Worded)) this.#violated('I1', `the intent of ${id}/${parsed.step} was taken and then refused for its fence`);
      }
      if (type !== 'EffectRequested' && type !== 'GroupRequested' && type !== 'StepRecorded') continue;
      const calls = parsed.calls ?? (parsed.call === undefined ? [] : [parsed.call]);
      for (const { step } of type === 'StepRecorded' ? [{ step: parsed.step ?? '' }] : calls) decided.set(step, (decided.get(step) ?? 0) + 1);
      const step = parsed.step ?? parsed.call?.step;
      if (step !== undefined) taken.set(step, wordsOf(parsed));
    }
    for (const [step, times] of decided) if (times > 1) this.#violated('I1', `${id}/${step} was decided ${times} times`);
    for (const place of this.#intended) {
      const [run, step = ''] = [place.slice(0, place.indexOf('/')), place.slice(place.indexOf('/') + 1)];
      if (run === id && !decided.has(step) && !refused.has(step) && ![...refused].some((group) => step.startsWith(`${group}.`))) this.#violated('I1', `the intent of ${place} was neither taken nor refused`);
    }
  }

  /** I3, I5: what the ledger says of a run's effects agrees with the run and with the world. */
  #effectsOf(id: string, effects: RunEffects, run: Exclude<Run, { status: 'absent' | 'lane' | 'brakes' }>): void {
    const { world } = this.sim;
    const { databases } = this.sim.cluster;
    for (const { type, data } of databases.ledger.stream(topics.effectEvents, id)) if (type === 'DuplicateEffectDetected') this.#violated('I3', `${id}: ${data}`);
    for (const { run: by, step, effect } of world.firings) {
      // Of a read that was refused nothing stands.
      if (by === id && effect !== 'pure' && this.#told.has(`${id}/${step}`) && !effects.has(step as Step)) this.#violated('I5', `a worker has told that ${id}/${step} has happened, and the ledger has not heard of it`);
    }
    for (const effect of effects.values()) {
      const firings = world.byKey.get(effect.key) ?? [];
      const step = run.steps.get(effect.step);
      if (effect.status === 'unknown' && run.status === 'open' && step?.kind === 'call' && step.outcome?.status !== 'unknown') this.#violated('I5', `the ledger holds ${id}/${effect.step} unknown, the run does not`);
      if (effect.status === 'succeeded' && effect.effect === 'irreversible' && !firings.some(({ applied }) => applied)) this.#violated('I5', `${id}/${effect.step} counts as succeeded and never happened`);
      // Whoever else asks for the key, another run or another step, may have it fired for himself.
      if (effect.status === 'failed' && effect.effect === 'irreversible' && firings.some(({ applied, run: by, step: at }) => applied && by === id && at === effect.step)) this.#violated('I5', `${id}/${effect.step} counts as failed and happened`);
    }
  }
}

const reports = (value: string | null, step: string, attempt: number): boolean => {
  const report = JSON.parse(value ?? '{}') as { step?: string; attempt?: number };
  return report.step === step && report.attempt === attempt;
};

/** Events by which a worker moves a run: each needs the run's present fence. */
const CLAIMS: ReadonlySet<string> = new Set(['EffectRequested', 'GroupRequested', 'StepRecorded', 'StepRetryScheduled', 'StepFailed', 'WaitStarted', 'WaitAbandoned', 'RunReleased', 'RunFinished']);

/** A state as text: maps and sets in their order. */
const text = (state: unknown): string => JSON.stringify(state, (_, value: unknown) => (value instanceof Map || value instanceof Set ? [...(value as Iterable<unknown>)] : value));
