import { headerText, parseTraceparent, spanOf, traceOf, traceparentOf } from '@holdfast/protocol';
import type { LoopObserver, Marked, TurnFacts } from '../loop/observer.js';
import type { LogRecord } from '../ports.js';
import type { Tracing } from './tracing.js';

/** Beginnings that are remembered until their end; beyond it the oldest are forgotten. */
const BEGUN_MAX = 50_000;

/** A lane's own stream is no run, and has no trace. */
const isRun = (stream: string | null): stream is string => stream !== null && !stream.startsWith('~');

/** Tells of each message that a service handled, and of what lasts: runs, steps, attempts, cases, plans. */
export class LoopTracer implements LoopObserver {
  readonly #service: string;
  readonly #tracing: Tracing;
  /** When things began, by span. Of what began before this process had the lane nothing stands here. */
  readonly #begun = new Map<string, number>();

  constructor(service: string, tracing: Tracing) {
    this.#service = service;
    this.#tracing = tracing;
  }

  traceparent(record: LogRecord | null, stream: string): string | null {
    if (!isRun(stream)) return null;
    return traceparentOf(traceOf(stream), record?.key === stream ? this.#spanOf(stream, record) : spanOf(stream));
  }

  onTurn(turn: TurnFacts): void {
    for (const { handled, marks } of turn.lanes) {
      for (const record of handled) if (isRun(record.key)) this.#handled(record.key, record, turn);
      for (const marked of marks) if (isRun(marked.stream)) this.#marked(marked);
    }
  }

  #spanOf(run: string, { topic, lane, offset }: LogRecord): string {
    return spanOf(run, this.#service, topic, lane, offset);
  }

  #handled(run: string, record: LogRecord, { startedAt, decidedAt, committedAt, messages }: TurnFacts): void {
    const trace = traceOf(run);
    const from = parseTraceparent(headerText(record.headers['traceparent']));
    this.#tracing.span({
      ...{ trace, span: this.#spanOf(run, record), parent: from?.trace === trace ? from.span : spanOf(run) },
      name: `${this.#service} ${headerText(record.headers['ce_type']) ?? 'message'}`,
      kind: 'consumer',
      ...{ startedAt, endedAt: committedAt },
      attributes: {
        'holdfast.run': run,
        'messaging.system': 'kafka',
        'messaging.destination.name': record.topic,
        'messaging.destination.partition.id': String(record.lane),
        'messaging.kafka.offset': record.offset,
        'messaging.batch.message_count': messages,
        'holdfast.decide_ms': decidedAt - startedAt,
        'holdfast.commit_ms': committedAt - decidedAt,
      },
      // Whoever asked keeps a trace of its own: the two point at each other.
      link: from?.trace === trace ? null : from,
    });
  }

  #marked({ stream: run, at, mark }: Marked): void {
    const span = spanOf(run, ...mark.parts);
    if (mark.mark === 'begins') {
      if (this.#begun.size >= BEGUN_MAX) for (const [oldest] of this.#begun) if (this.#begun.delete(oldest)) break;
      if (!this.#begun.has(span)) this.#begun.set(span, at);
      return;
    }
    const begun = mark.since ?? this.#begun.get(span);
    this.#begun.delete(span);
    this.#tracing.span({
      ...{ trace: traceOf(run), span, parent: mark.parts.length === 0 ? null : spanOf(run, ...(mark.parent ?? [])) },
      ...{ name: mark.name, kind: 'internal', startedAt: begun ?? at, endedAt: at, failed: mark.failed },
      attributes: { 'holdfast.run': run, ...mark.attributes, ...(begun === undefined ? { 'holdfast.began_elsewhere': true } : {}) },
    });
  }
}
