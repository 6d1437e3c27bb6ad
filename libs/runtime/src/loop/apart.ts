import { blameOf, message } from './faults.js';
import type { InboundTopic } from './service.js';
import type { LaneWork } from './turn.js';

/** What comes of a turn that failed and would fail again: turns that take its place, one after the other, or that its one lane stops. */
export type Apart<State> = { readonly kind: 'turns'; readonly turns: readonly (readonly LaneWork<State>[])[] } | { readonly kind: 'stop'; readonly work: LaneWork<State>; readonly reason: string };

/** Finds which message of which lane it is: other lanes go on, and what comes before it is decided and written. An outsider's is parked. */
export function apart<State>(works: readonly LaneWork<State>[], error: unknown, inbound: readonly InboundTopic[]): Apart<State> {
  const parts = halves(works);
  const [work] = works;
  if (parts !== null || work === undefined) return { kind: 'turns', turns: parts ?? [] };
  const [record] = work.records;
  const isOutsiders = inbound.some(({ name, writtenBy }) => name === record?.topic && writtenBy === 'outsider');
  // What a service says, and a timer, must not be passed over: it is nobody's bad input.
  if (isOutsiders && blameOf(error) === 'message' && work.notStorable === undefined) return { kind: 'turns', turns: [[{ ...work, notStorable: `what it leads to can’t be written: ${message(error)}` }]] };
  return { kind: 'stop', work, reason: `what ${inWords(work)} leads to can’t be written, and never could as it is: ${message(error)}` };
}

/** What a turn is about, in two parts that are done one after the other; null where it is one thing of one lane. */
function halves<State>(works: readonly LaneWork<State>[]): readonly (readonly LaneWork<State>[])[] | null {
  const middle = Math.ceil(works.length / 2);
  if (works.length > 1) return [works.slice(0, middle), works.slice(middle)];
  const [work] = works;
  if (work === undefined) return null;
  const { lane, again = [], records, due } = work;
  const things = [...again.map((one) => ({ again: one })), ...records.map((one) => ({ record: one })), ...due.map((one) => ({ due: one }))];
  if (things.length < 2) return null;
  const half = Math.ceil(things.length / 2);
  return [things.slice(0, half), things.slice(half)].map((some) => [
    {
      lane,
      again: some.flatMap((one) => ('again' in one ? [one.again] : [])),
      records: some.flatMap((one) => ('record' in one ? [one.record] : [])),
      due: some.flatMap((one) => ('due' in one ? [one.due] : [])),
    },
  ]);
}

/** The one thing that it is about. */
function inWords<State>({ again = [], records, due }: LaneWork<State>): string {
  const record = again[0]?.record ?? records[0];
  return record === undefined ? `the look at ${due[0] ?? 'nothing'}` : `the message on ${record.topic}/${record.lane} at offset ${record.offset}`;
}
