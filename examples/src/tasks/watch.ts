import { decodeHeaders, topics, type Envelope } from '@holdfast/protocol';
import { tail, type Tail } from '@holdfast/runtime/kafka';
import type { LogRecord } from '@holdfast/runtime';

export interface WatchedRun {
  status: 'accepted' | 'completed' | 'failed' | 'blocked' | 'quarantined';
  steps: number;
  effects: number;
  startedAt: number;
  endedAt: number | null;
  /** What is unknown, by step. */
  readonly unknown: Map<string, string>;
  changedAt: number;
}

export interface InFlight {
  readonly run: string;
  readonly step: string;
  readonly lane: number;
  readonly from: number;
  to: number | null;
}

/** Follows the topics as any subscriber could, and keeps what the demo shows and judges by. */
export class Watch {
  readonly runs = new Map<string, WatchedRun>();
  /** Every granted attempt at an irreversible effect, with the time from its dispatch to its end. */
  readonly attempts: InFlight[] = [];
  /** Worker ids by lane. */
  readonly holders = new Map<number, string>();
  #tail: Tail | undefined;
  readonly #seen = new Set<string>();
  #listeners: (() => void)[] = [];

  async open(brokers: readonly string[]): Promise<void> {
    this.#tail = await tail({ brokers, topics: [topics.runEvents, topics.effectEvents], from: 'beginning', onRecord: (record) => this.#note(record) });
  }

  async close(): Promise<void> {
    await this.#tail?.close();
  }

  openAttempts(): InFlight[] {
    return this.attempts.filter(({ to }) => to === null);
  }

  /** Resolves at the next event, or after a time (milliseconds). */
  change(withinMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, withinMs);
      this.#listeners.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  #note(record: LogRecord): void {
    const envelope = decodeHeaders(record.headers, record.key, record.time);
    if (envelope?.seq === undefined) return;
    const id = `${envelope.source}/${envelope.lane ?? ''}/${envelope.seq}`;
    if (this.#seen.has(id)) return;
    this.#seen.add(id);
    const data = JSON.parse(record.value ?? '{}') as Record<string, unknown>;
    if (record.topic === topics.runEvents) this.#runEvent(envelope, data, record.lane);
    else this.#effectEvent(envelope, data, record.lane);
    for (const wake of this.#listeners.splice(0)) wake();
  }

  #runEvent(envelope: Envelope, data: Record<string, unknown>, lane: number): void {
    if (envelope.type === 'LaneTaken') return void this.holders.set(lane, String(data['worker']));
    const run = this.runs.get(envelope.subject) ?? { status: 'accepted', steps: 0, effects: 0, startedAt: envelope.time, endedAt: null, unknown: new Map(), changedAt: 0 };
    this.runs.set(envelope.subject, run);
    run.changedAt = envelope.time;
    for (const settled of (data['settles'] as { step: string }[] | undefined) ?? []) this.#settled(run, settled.step);
    switch (envelope.type) {
      case 'EffectRequested': {
        const { effect } = data['call'] as { effect: string };
        run.steps += 1;
        if (effect !== 'pure') run.effects += 1;
        return;
      }
      case 'RunBlocked':
        run.status = 'blocked';
        run.unknown.set(String(data['step']), String(data['message']));
        return;
      case 'EffectSettled':
      case 'StepReleased':
        return this.#settled(run, String(data['step']));
      case 'RunFinished':
        run.status = (data['ending'] as { status: string }).status === 'completed' ? 'completed' : 'failed';
        run.endedAt = envelope.time;
        return;
      case 'RunQuarantined':
        run.status = 'quarantined';
        run.endedAt = envelope.time;
        return;
    }
  }

  #settled(run: WatchedRun, step: string): void {
    run.unknown.delete(step);
    if (run.status === 'blocked' && run.unknown.size === 0) run.status = 'accepted';
  }

  #effectEvent(envelope: Envelope, data: Record<string, unknown>, lane: number): void {
    const step = String(data['step']);
    if (envelope.type === 'EffectDispatched') {
      if (data['effect'] === 'irreversible') this.attempts.push({ run: envelope.subject, step, lane, from: envelope.time, to: null });
      return;
    }
    for (const attempt of this.attempts) if (attempt.run === envelope.subject && attempt.step === step) attempt.to ??= envelope.time;
  }
}
