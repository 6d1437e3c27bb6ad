import { topics } from '@holdfast/protocol';
import type { JournalRow, LogRecord } from '@holdfast/runtime';
import { dataOf } from './folds.js';
import type { SimLog } from './log.js';
import type { Firing } from './world.js';

interface Announced {
  readonly worker: string;
  readonly generation?: number;
}

/** 6.1: whoever has taken a lane anew fires nothing by itself under what it was granted in an earlier holding. */
export class HoldJudge {
  /** Generation under which each worker has last announced each lane. */
  readonly #announced = new Map<string, number>();
  /** Offset of the announcement under which a run was granted, by run and fence. */
  readonly #taken = new Map<string, number>();

  constructor(
    private readonly log: SimLog,
    private readonly violated: (invariant: string, what: string) => void,
  ) {
    log.watch((record) => this.#announcement(record));
  }

  #announcement({ topic, lane, headers, value }: LogRecord): void {
    if (topic !== topics.agentIntents || headers['ce_type'] !== 'AnnounceLane') return;
    const { worker, generation = 0 } = JSON.parse(value ?? '') as Announced;
    const place = `${lane}/${worker}`;
    this.#announced.set(place, Math.max(generation, this.#announced.get(place) ?? 0));
  }

  /** A row of a run's stream. */
  row(row: JournalRow): void {
    if (row.type !== 'LeaseGranted' && row.type !== 'RunResumed') return;
    const { lease } = dataOf(row) as { lease: { fence: number; taken: number } };
    this.#taken.set(`${row.stream}/${lease.fence}`, lease.taken);
  }

  /** Asked at each call that a worker makes by itself. */
  firing({ tool, run, step, attempt, fence, process }: Firing): void {
    const lane = this.log.laneOf(run);
    const { value } = this.log.lane(topics.agentIntents, lane)[this.#taken.get(`${run}/${fence}`) ?? -1] ?? {};
    const under = value === undefined || value === null ? null : (JSON.parse(value) as Announced);
    const now = this.#announced.get(`${lane}/${process}`) ?? 0;
    if (under?.worker === process && (under.generation ?? 0) < now) this.violated('6.1', `${tool} at ${run}/${step} attempt ${attempt} fired on ${process} under a grant of generation ${under.generation ?? 0}; it has taken the lane anew in ${now}`);
  }
}
