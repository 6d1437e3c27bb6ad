import { brakeKey, brakeStream, isoTime, topics, type Asking, type BrakeTarget } from '@holdfast/protocol';
import { partitionsOf } from '@holdfast/runtime/kafka';
import { readStreams } from './audit/read-events.js';
import { answerBefore, answerTo, sayBefore, type Asked } from './operator.js';
import { runOf } from './run-of.js';

export interface BrakeView {
  readonly brake: string;
  readonly by: string;
  readonly reason: string;
  readonly since: string;
  /** Lanes on which it is set; fewer than all only while a command is under way, or was cut off. */
  readonly lanes: number;
}

const STREAM = /^~brakes\/(\d+)$/;

/** What is held still beyond single runs, from `run.events` alone. */
export async function readBrakes(brokers: readonly string[]): Promise<BrakeView[]> {
  const found = new Map<string, BrakeView>();
  for (const { stream, events } of (await readStreams(brokers, topics.runEvents)).values()) {
    if (!STREAM.test(stream)) continue;
    const state = runOf({ events });
    if (state.status !== 'brakes') continue;
    for (const [brake, { by, reason, command: id }] of state.set) {
      const at = events.findLast(({ data }) => data !== null && typeof data === 'object' && 'command' in data && data['command'] === id)?.envelope.time ?? 0;
      found.set(brake, { brake, by: by.name, reason, since: isoTime(at), lanes: (found.get(brake)?.lanes ?? 0) + 1 });
    }
  }
  return [...found.values()].sort((a, b) => a.brake.localeCompare(b.brake));
}

/** Tells every lane, and says what each made of it. The same command, sent again, reaches those that it missed. @throws CliError its id named another command: then no lane is told */
export async function tellLanes(brokers: readonly string[], tenant: string, asked: Asked, target: BrakeTarget, message: Asking): Promise<{ brake: string; lanes: number; refused: string[] }> {
  const lanes = await partitionsOf(brokers, topics.operatorCommands);
  const told = Array.from({ length: lanes }, (_, lane) => ({ brokers, answersOn: topics.runEvents, run: brakeStream(lane), lane, asked, message }));
  if (asked.again) await Promise.all(told.map(answerBefore));
  const answers = await Promise.all(told.map((each) => answerTo({ ...each, known: async () => ({ tenant }) })));
  sayBefore(answers);
  return { brake: brakeKey(target), lanes, refused: [...new Set(answers.flatMap(({ type, data }) => (type === 'InputRefused' ? [String(data['message'])] : [])))] };
}
