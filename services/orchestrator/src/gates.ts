import { AdmitRun, CancelRun, topics, type MessageOf, type RunId, type StartRun } from '@holdfast/protocol';
import type { SharedWord, Turn } from '@holdfast/runtime';
import { admit, admitFurther, emptyGate, gateKey, gateName, GateRow, left, letIn, together, type Accepted, type Admission, type Admitted, type Gate, type GateName } from './domain/admission.js';
import type { KnownRun, Run, RunEvent } from './domain/run.js';
import type { Settings } from './settings.js';

type RunTurn = Turn<Run, RunEvent>;
type Start = MessageOf<typeof StartRun>['data'];
type About = Pick<Start, 'agent' | 'concurrencyKey'>;

/** Rows that say how much room there is; read under their locks, and only for runs that a limit or a conversation is about. */
export class Gates {
  constructor(private readonly limits: Settings['limits']) {}

  /** What becomes of a start; undefined where nothing limits it. */
  start(run: string, tenant: string, data: Start, turn: RunTurn): Admission | undefined {
    const gates = this.#gatesOf(tenant, data, turn);
    if (gates.length === 0) return undefined;
    const asking = { run: run as RunId, tenant, priority: data.priority ?? 0, queueMs: data.queueMs, mode: data.onConcurrent ?? 'enqueue', at: turn.now } as const;
    return this.#taken(admit(asking, gates), turn, run, tenant, data.onConcurrent === 'rollback');
  }

  /** A queued run's turn has come at a gate, or may have: null while it has not, whoever says so. */
  further(run: string, known: KnownRun, gate: string, turn: RunTurn): Accepted | null {
    const at = this.#gate(gateName(gate), turn);
    if (at.row.queue.some((entry) => entry.run === run)) {
      const { row, next } = letIn(at);
      if (!next.some((each) => each.run === run)) return null;
      this.#handOver(gate, row, next.filter((each) => each.run !== run), turn);
    }
    const { tenant, agent, concurrencyKey, priority, queued } = known;
    const gates = this.#gatesOf(tenant, { agent, ...(concurrencyKey === null ? {} : { concurrencyKey }) }, turn);
    const queueMs = Math.max(1, (queued?.expiresAt ?? turn.now) - turn.now);
    const asking = { run: run as RunId, tenant, priority, queueMs, mode: 'enqueue', at: turn.now } as const;
    return this.#taken(admitFurther(asking, gates, [...known.gates, gate]), turn, run, tenant, false);
  }

  /** A run is over: who waits at its gates is let in. */
  leave(run: string, known: KnownRun, turn: RunTurn): void {
    for (const key of [...known.gates, ...(known.queued === null ? [] : [known.queued.gate])]) {
      const { row, next } = left(this.#gate(gateName(key), turn), run);
      this.#handOver(key, row, next, turn);
    }
  }

  #handOver(key: string, row: GateRow, next: ReturnType<typeof letIn>['next'], turn: RunTurn): void {
    turn.putShared(key, JSON.stringify(row));
    for (const each of next) turn.send(topics.agentIntents, each.run, each.tenant, AdmitRun({ gate: key }));
  }

  /** What a run has in rows that span lanes. */
  static words(run: string, state: Run): SharedWord[] {
    if (state.status !== 'open' && state.status !== 'quarantined') return [];
    const word = (key: string, own: GateRow): SharedWord => ({ key, rank: 0, data: JSON.stringify(own), join: (before) => JSON.stringify(together(GateRow.parse(JSON.parse(before)), own)) });
    const { gates, queued, tenant, priority } = state;
    return [
      ...gates.map((key) => word(key, { ...emptyGate, open: 1, holder: gateName(key)[0] === 'key' ? run : null })),
      ...(queued === null ? [] : [word(queued.gate, { ...emptyGate, queue: [{ run, tenant, priority, since: queued.since }] })]),
    ];
  }

  #taken<Of extends Admission>({ admission, rows }: Admitted<Of>, turn: RunTurn, run: string, tenant: string, compensate: boolean): Of {
    for (const [key, row] of rows) turn.putShared(key, JSON.stringify(row));
    if (admission.kind === 'queued' && admission.cancel !== null) {
      const by = { name: `run ${run}`.slice(0, 200), roles: ['operator'] };
      const asked = { command: `concurrent:${run}`.slice(0, 200), by, reason: `newer input came as run ${run}`, scope: 'tree', manner: 'graceful' } as const;
      turn.send(topics.operatorCommands, admission.cancel, tenant, CancelRun({ ...asked, ...(compensate ? { compensate: true as const } : {}) }));
    }
    return admission;
  }

  #gatesOf(tenant: string, { agent, concurrencyKey }: About, turn: RunTurn): Gate[] {
    const names: GateName[] = [...(concurrencyKey === undefined ? [] : [['key', tenant, concurrencyKey] as const]), ['tenant', tenant], ...(agent === null ? [] : [['agent', agent.name] as const])];
    return names.filter((name) => name[0] === 'key' || this.#limit(name) !== undefined).map((name) => this.#gate(name, turn));
  }

  #gate(name: GateName, turn: RunTurn): Gate {
    const data = turn.shared(gateKey(name));
    return { name, limit: this.#limit(name) ?? {}, row: data === null ? emptyGate : GateRow.parse(JSON.parse(data)) };
  }

  #limit(name: GateName): Settings['limits']['tenants'][string] | undefined {
    if (name[0] === 'key') return undefined;
    const of = name[0] === 'tenant' ? this.limits.tenants : this.limits.agents;
    return of[name[1]] ?? of['*'];
  }
}
