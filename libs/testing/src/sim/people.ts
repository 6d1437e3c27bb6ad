import { CancelRun, DecideApproval, DeliverCallback, encodeHeaders, RunId, SignalRun, Step, topics, type Json, type Message, type Operator } from '@holdfast/protocol';
import type { LogRecord } from '@holdfast/runtime';
import type { Op } from './agents.js';
import { Chance } from './chance.js';
import type { Cluster } from './cluster.js';
import { SimProcess } from './process.js';
import { APPROVERS, CALLED_BACK, SIGNALLED, waitsOf } from './waits.js';

/** Something that was sent to a run, by whom it concerns to have an answer. */
export interface Input {
  readonly run: string;
  /** Of the signal or the command; callbacks have none. */
  readonly id: string | null;
  acknowledged: boolean;
}

export interface Planned {
  readonly id: string;
  readonly program: readonly Op[];
}

const AGAIN_MS = 200;
/** How long after its reason something is sent at the latest: deadlines pass meanwhile. Milliseconds. */
const LATEST_MS = 6000;
const CANCELLED_OF_ALL = 0.2;
export const kate: Operator = { name: 'kate', roles: [...APPROVERS, 'operator'] };
export const eve: Operator = { name: 'eve', roles: ['intern'] };

/** Operators, approvers, third parties and other programs of one world: they act at random times, before, in time, twice, late, wrongly or never. */
export class People {
  readonly inputs: Input[] = [];
  /** Runs that an operator cancels. */
  readonly cancelled = new Set<string>();
  /** What is yet to be sent. */
  outstanding = 0;
  readonly #asked = new Set<string>();
  readonly #seed: string;
  #sent = 0;

  constructor(
    private readonly cluster: Cluster,
    runs: readonly Planned[],
  ) {
    this.#seed = cluster.core.seed;
    const programs = new Map(runs.map(({ id, program }) => [id, program]));
    cluster.log.watch((record) => {
      const { topic, key, headers, value } = record;
      const program = topic === topics.runEvents ? programs.get(key ?? '') : undefined;
      if (program === undefined || key === null || !this.#first(record)) return;
      if (headers['ce_type'] === 'RunAccepted') this.#begun(key, program);
      if (headers['ce_type'] === 'WaitStarted') this.#waits(key, JSON.parse(value ?? '') as { step: string; wait: { kind: string } });
    });
  }

  /** A third party is given a callback's URL, as often as the code runs. */
  told(url: string): void {
    const [run = '', step = '', token = ''] = url.slice(url.indexOf('/') + 1).split('/').map(decodeURIComponent);
    if (this.#asked.has(url)) return;
    this.#asked.add(url);
    const chance = new Chance(`${this.#seed}/third party/${run}/${step}`);
    const answer = (of: string, payload: Json, afterMs: number): void => this.#send(run, topics.agentIntents, DeliverCallback({ step: Step.parse(step), token: of, payload }), null, afterMs);
    const soon = (): number => chance.between(0, LATEST_MS / 2);
    if (chance.hits(0.3)) answer('f'.repeat(token.length), 'forged', soon());
    if (chance.hits(0.2)) answer(token, { not: 'what was asked for' }, soon());
    for (let times = chance.pick([0, 1, 1, 2]); times > 0; times -= 1) answer(token, CALLED_BACK, chance.hits(0.3) ? chance.between(0, LATEST_MS) : soon());
  }

  /** A record that was written once more is no news. */
  #first({ headers, key }: LogRecord): boolean {
    const id = `${key ?? ''}/${String(headers['ce_type'])}/${String(headers['ce_seq'])}/${String(headers['ce_source'])}`;
    if (this.#asked.has(id)) return false;
    this.#asked.add(id);
    return true;
  }

  #begun(run: string, program: readonly Op[]): void {
    const chance = new Chance(`${this.#seed}/people/${run}`);
    for (const wait of waitsOf(program)) {
      if (wait.do !== 'signal') continue;
      const signal = (id: string, payload: Json, afterMs: number): void => this.#send(run, topics.agentIntents, SignalRun({ signal: id, name: wait.name, payload }), id, afterMs);
      if (chance.hits(0.2)) signal(`misfit ${wait.name}`, 5, chance.between(0, LATEST_MS));
      for (let times = chance.pick([0, 1, 1, 2, 3]); times > 0; times -= 1) signal(chance.hits(0.5) ? `one ${wait.name}` : `no. ${times} ${wait.name}`, SIGNALLED, chance.hits(0.3) ? 0 : chance.between(0, LATEST_MS));
    }
    if (!chance.hits(CANCELLED_OF_ALL)) return;
    this.cancelled.add(run);
    const cancel = (command: string, manner: 'graceful' | 'immediate', afterMs: number): void =>
      this.#send(run, topics.operatorCommands, CancelRun({ command, by: kate, reason: 'changed her mind', scope: 'run', manner, ...(new Chance(`${this.#seed}/compensates/${run}`).hits(0.5) ? { compensate: true as const } : {}) }), command, afterMs);
    const at = chance.between(0, chance.hits(0.6) ? LATEST_MS / 5 : LATEST_MS);
    cancel('cancel', chance.pick(['graceful', 'immediate']), at);
    if (chance.hits(0.3)) cancel('cancel again', 'immediate', at + chance.between(0, 1000));
  }

  #waits(run: string, { step, wait }: { readonly step: string; readonly wait: { readonly kind: string } }): void {
    if (wait.kind !== 'approval') return;
    const chance = new Chance(`${this.#seed}/approver/${run}/${step}`);
    const decide = (by: Operator, decision: 'approve' | 'reject', command: string, afterMs: number): void =>
      this.#send(run, topics.operatorCommands, DecideApproval({ command, by, step: Step.parse(step), decision }), command, afterMs);
    if (chance.hits(0.2)) decide(eve, 'approve', `eve ${step}`, chance.between(0, 500));
    for (let times = chance.pick([0, 1, 1, 1, 2]); times > 0; times -= 1) decide(kate, chance.hits(0.75) ? 'approve' : 'reject', `kate ${step} ${chance.hits(0.5) ? 'once' : times}`, chance.between(0, chance.hits(0.3) ? LATEST_MS : 1500));
  }

  #send(run: string, topic: string, message: Message, id: string | null, afterMs: number): void {
    this.inputs.push(this.send(run, topic, id, afterMs, () => message));
  }

  /** Sends what is to be said when its time has come, until Kafka has acknowledged it. */
  send(run: string, topic: string, id: string | null, afterMs: number, say: (now: number) => Message): Input {
    const { core, log } = this.cluster;
    this.outstanding += 1;
    this.#sent += 1;
    const client = new SimProcess(core, 'client', `person-${this.#sent}`);
    const input: Input = { run, id, acknowledged: false };
    const writer = log.writer(client);
    const publish = (message: Message): void => {
      const headers = encodeHeaders({ id: client.name, type: message.type, source: client.name, subject: RunId.parse(run), time: client.clock.now(), tenant: 'default' });
      writer.publish([{ topic, key: run, headers, value: JSON.stringify(message.data) }]).then(
        () => {
          input.acknowledged = true;
          this.outstanding -= 1;
        },
        () => void client.clock.after(AGAIN_MS, () => publish(message)),
      );
    };
    client.clock.after(afterMs, () => publish(say(client.clock.now())));
    return input;
  }
}
