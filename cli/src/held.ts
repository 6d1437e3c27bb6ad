import { decoder, effectMessages, isoTime, topics, type Json, type Step } from '@holdfast/protocol';
import { readStreams } from './audit/read-events.js';

/** An effect that has not been sent and may not be now. Times are RFC 3339. */
export interface HeldStep {
  readonly since: string;
  readonly why: string;
  /** From then on it has failed, unfired; null: it waits as long as it is held. */
  readonly until: string | null;
}

interface Known {
  /** It waits for its turn: to be sent, or to be tried again. */
  readonly waits: { readonly since: number; readonly why: string | null; readonly until: number | null } | null;
  /** Reasons by what holds it: its run, or a brake. */
  readonly pausedBy: ReadonlyMap<string, string>;
}

const decode = decoder(effectMessages);
const unknown: Known = { waits: null, pausedBy: new Map() };

/** Effects of a run that are held, by step: what the ledger has told, in order. */
export function heldSteps(events: readonly { readonly type: string; readonly data: Json; readonly time: number }[]): Map<Step, HeldStep> {
  const steps = new Map<Step, Known>();
  for (const { type, data, time } of events) {
    const decoded = decode(type, data);
    if (!decoded.ok) continue;
    const { step } = decoded.message.data;
    steps.set(step, after(steps.get(step) ?? unknown, decoded.message, time));
  }
  return new Map([...steps].flatMap(([step, { waits, pausedBy }]) => {
    const why = [...(waits?.why === null || waits?.why === undefined ? [] : [waits.why]), ...pausedBy.values()];
    return waits === null || why.length === 0 ? [] : [[step, { since: isoTime(waits.since), why: why.join('; '), until: waits.until === null || pausedBy.size > 0 ? null : isoTime(waits.until) }]];
  }));
}

function after(before: Known, { type, data }: Extract<ReturnType<typeof decode>, { ok: true }>['message'], time: number): Known {
  switch (type) {
    case 'EffectHeld':
      // What a pause says of it is among what holds it.
      return { ...before, waits: { since: data.since, why: data.because === 'paused' ? null : data.message, until: data.until } };
    case 'EffectPaused':
      return { ...before, pausedBy: new Map(before.pausedBy).set(data.by, data.because) };
    case 'EffectUnpaused':
      return { waits: before.waits === null ? null : { ...before.waits, until: data.until }, pausedBy: new Map([...before.pausedBy].filter(([by]) => by !== data.by)) };
    case 'EffectRetryScheduled':
      return { ...before, waits: { since: time, why: null, until: null } };
    case 'EffectProgressed':
    case 'EffectStopped':
    case 'LateResultRecorded':
    case 'VerdictContradicted':
    case 'DuplicateEffectDetected':
      return before;
    default:
      // Sent, or over: what is under way ends as it ends.
      return { ...before, waits: null };
  }
}

/** The same, from `effect.events` alone. */
export async function readHeld(brokers: readonly string[], run: string): Promise<Map<Step, HeldStep>> {
  const stream = (await readStreams(brokers, topics.effectEvents, run)).get(run);
  return heldSteps((stream?.events ?? []).map(({ envelope: { type, time }, data }) => ({ type, time, data })));
}
