import { CompensateRun, DecideCompensation, ResolveCase, Step, topics, type CaseOpened, type CompensationApprovalAsked, type MessageOf } from '@holdfast/protocol';
import type { LogRecord } from '@holdfast/runtime';
import { Chance } from './chance.js';
import type { Cluster } from './cluster.js';
import { eve, kate, type People } from './people.js';
import { isApproved, probeOf, SETTLE_MS } from './settling.js';
import { resultOf, type FakeWorld } from './world.js';

type Opened = MessageOf<typeof CaseOpened>['data'];
/** Longer than a clock is behind here. */
const AGAIN_MS = 2000;

type Asked = MessageOf<typeof CompensationApprovalAsked>['data'];

/** Whoever settles the cases that nothing but a person can, decides on answers, and asks for them: too early, wrongly, twice, and in the end rightly. */
export class Desk {
  /** Commands that were sent, by run. */
  readonly commands: { readonly run: string; readonly id: string; readonly about: 'case' | 'plan' }[] = [];
  readonly #seen = new Set<string>();
  readonly #answerable = new Set<string>();
  /** What is done once more when it is refused as too early: by the clock of whoever refuses, which may be behind. */
  readonly #again = new Map<string, () => void>();
  readonly #seed: string;

  constructor(
    private readonly cluster: Cluster,
    private readonly world: FakeWorld,
    private readonly people: People,
  ) {
    this.#seed = cluster.core.seed;
    cluster.log.watch((record) => this.#read(record));
  }

  #read({ topic, key, headers, value }: LogRecord): void {
    const { ce_type: type, ce_seq: seq, ce_source: source, ce_lane: lane } = headers;
    if (seq === undefined || key === null) return;
    const id = `${String(source)}/${String(lane)}/${String(seq)}`;
    if (this.#seen.has(id)) return;
    this.#seen.add(id);
    const data = (): unknown => JSON.parse(value ?? '');
    if (topic === topics.reconciliationEvents && type === 'CaseOpened') this.#look(key, data() as Opened);
    if (topic === topics.reconciliationEvents && type === 'CaseCommandRefused') {
      const { command, reason } = data() as { command: string; reason: string };
      if (reason === 'too_early') this.#again.get(`${key}/${command}`)?.();
    }
    if (topic === topics.compensationEvents && type === 'CompensationRegistered') this.#answerable.add(key);
    if (topic === topics.compensationEvents && type === 'CompensationApprovalAsked') this.#decide(key, data() as Asked);
    if (topic === topics.runEvents && type === 'RunFinished') this.#wish(key);
  }

  /** A person looks into the target when nothing of the attempt can take effect any more; some look before. */
  #look(run: string, { step, attempt, of, key, tool, args, readingFrom }: Opened): void {
    if (probeOf(tool.name) !== null) return;
    const chance = new Chance(`${this.#seed}/desk/${run}/${step}/${of}`);
    const { n } = args as { n: number };
    const look = (by: typeof kate, id: string, afterMs: number, force = false): void => {
      this.commands.push({ run, id, about: 'case' });
      this.people.send(run, topics.operatorCommands, id, afterMs, (readAt) => {
        const verdict = this.world.hasHappened(key) ? { status: 'applied' as const, result: resultOf(tool.name, n) } : { status: 'not_applied' as const };
        return ResolveCase({ command: id, by, step, attempt, verdict, reason: 'looked', evidence: 'the books', readAt, ...(force ? { force } : {}) });
      });
    };
    const now = this.cluster.core.scheduler.now;
    if (chance.hits(0.3)) look(kate, `early ${step}/${of}`, chance.between(0, 2000));
    if (chance.hits(0.2)) look(eve, `eve ${step}/${of}`, chance.between(0, 2000));
    // A look counts from the moment in which it is written down. Where the contract names no time to wait for, the person knows one.
    const settled = Math.max(0, (readingFrom ?? now + SETTLE_MS) - now) + 1;
    const finalLook = (id: string, afterMs: number): void => {
      this.#again.set(`${run}/${id}`, () => finalLook(`again ${id}`, AGAIN_MS));
      look(kate, id, afterMs, readingFrom === null);
    };
    for (let times = chance.pick([1, 1, 2]); times > 0; times -= 1) finalLook(`no. ${times} ${step}/${of}`, settled + chance.between(0, 1500));
  }

  #decide(run: string, { plan, of, digest }: Asked): void {
    const chance = new Chance(`${this.#seed}/treasurer/${run}/${of}/${plan}/${this.#seen.size}`);
    const decide = (by: typeof kate, id: string, shown: typeof digest, afterMs: number, decision: 'approve' | 'reject'): void => {
      this.commands.push({ run, id, about: 'plan' });
      this.people.send(run, topics.operatorCommands, id, afterMs, () => DecideCompensation({ command: id, by, step: Step.parse(of), decision, digest: shown }));
    };
    const word = isApproved(this.#seed, run, of) ? 'approve' : 'reject';
    const name = `${of}/${plan}/${this.#seen.size}`;
    if (chance.hits(0.2)) decide(eve, `eve ${name}`, digest, chance.between(0, 500), 'approve');
    if (chance.hits(0.2)) decide(kate, `other ${name}`, 'f'.repeat(64) as typeof digest, chance.between(0, 500), 'approve');
    for (let times = chance.pick([1, 1, 2]); times > 0; times -= 1) decide(kate, `no. ${times} ${name}`, digest, chance.between(0, 2000), word);
  }

  /** Now and then somebody wants all that a run did to be answered, once it is over. */
  #wish(run: string): void {
    const chance = new Chance(`${this.#seed}/wish/${run}`);
    if (!this.#answerable.has(run) || !chance.hits(0.3)) return;
    const wish = (by: typeof kate, id: string): void => {
      this.commands.push({ run, id, about: 'plan' });
      this.people.send(run, topics.operatorCommands, id, chance.between(0, 3000), () => CompensateRun({ command: id, by, reason: 'it was a mistake' }));
    };
    if (chance.hits(0.2)) wish(eve, 'eve wishes');
    for (let times = chance.pick([1, 1, 2]); times > 0; times -= 1) wish(kate, chance.hits(0.5) ? 'wishes' : `wishes no. ${times}`);
  }
}
