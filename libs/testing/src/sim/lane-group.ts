import type { CommitEnd, CommittedOffset, LaneGroup, LaneGroupHandlers, Membership } from '@holdfast/runtime';
import { isDirectSuccessor } from '@holdfast/runtime/kafka';
import type { Coordinator, Joined } from './coordinator.js';
import type { SimLog } from './log.js';
import type { SimProcess } from './process.js';

interface Fetcher {
  readonly topic: string;
  readonly lane: number;
  position: number;
  /** Which of those that this member has opened. */
  readonly no: number;
  /** A fetch is under way, or what it brought is being taken. */
  busy: boolean;
}

export interface SimLaneGroupParts {
  readonly process: SimProcess;
  readonly log: SimLog;
  readonly coordinator: Coordinator;
  readonly topics: readonly string[];
  readonly handlers: LaneGroupHandlers;
  /** The messages that a commit covers. */
  readonly texts: (topic: string, lane: number, from: number, to: number) => Iterable<string>;
}

const FETCH_MAX = 200;
const RETRY_MS = 300;

/** A member of a group, as `libs/runtime`'s is one of Kafka's: the same promises, kept over the simulated broker. */
export class SimLaneGroup implements LaneGroup {
  readonly sessionTimeoutMs: number;
  readonly #parts: SimLaneGroupParts;
  readonly #fetchers = new Map<string, Fetcher>();
  #memberId: string | null = null;
  #membership: Membership | null = null;
  #held: { membership: Membership; lanes: readonly number[] } | null = null;
  #lanes: readonly number[] = [];
  #heartbeatSentAt: number | null = null;
  /** Counts joins: what belongs to an earlier one is void. */
  #era = 0;
  #running = false;
  #opened = 0;

  constructor(parts: SimLaneGroupParts) {
    this.#parts = parts;
    this.sessionTimeoutMs = parts.coordinator.sessionTimeoutMs;
    parts.process.parts.push(() => JSON.stringify([this.#memberId, this.#membership, this.#held, this.#lanes, this.#heartbeatSentAt, this.#era, this.#running, this.#opened, [...this.#fetchers]]));
  }

  async start(): Promise<void> {
    this.#running = true;
    await this.#join();
  }

  async stop(): Promise<void> {
    this.#running = false;
    await this.#leave();
    this.#revoke();
    this.#held = null;
  }

  async rejoin(): Promise<void> {
    this.#revoke();
    this.#held = null;
    await this.#leave();
    if (this.#running) await this.#join();
  }

  open(positions: readonly { topic: string; lane: number; offset: number }[]): void {
    for (const { topic, lane, offset } of positions) {
      if (!this.#lanes.includes(lane) || this.#membership === null) continue;
      this.#opened += 1;
      const fetcher: Fetcher = { topic, lane, position: offset, no: this.#opened, busy: false };
      this.#fetchers.set(`${topic}/${lane}`, fetcher);
      this.#fetch(fetcher);
    }
  }

  committed(topic: string, lanes: readonly number[]): Promise<Map<number, CommittedOffset>> {
    const { process, coordinator } = this.#parts;
    return process.ask({
      site: 'group',
      server: 'coordinator',
      reads: true,
      apply: () => new Map(lanes.map((lane) => [lane, coordinator.committed.get(`${topic}/${lane}`) ?? { offset: null, metadata: '' }])),
    });
  }

  offsets(topic: string): Promise<Map<number, { first: number; next: number }>> {
    const { process, log } = this.#parts;
    return process.ask({
      site: 'group',
      server: 'broker',
      reads: true,
      apply: () => new Map(Array.from({ length: log.partitions }, (_, lane) => [lane, { first: 0, next: log.lane(topic, lane).length }])),
    });
  }

  async commit(membership: Membership, offsets: readonly { topic: string; lane: number; offset: number; metadata: string }[]): Promise<CommitEnd> {
    const { process, coordinator, texts } = this.#parts;
    try {
      const end = await process.ask({
        site: 'offset.commit',
        server: 'coordinator',
        texts: () => offsets.flatMap(({ topic, lane, offset }) => [...texts(topic, lane, coordinator.committed.get(`${topic}/${lane}`)?.offset ?? 0, offset)]),
        apply: () => coordinator.commit(membership, offsets),
      });
      process.core.trace(process.name, () => `its commit of ${offsets.map(({ topic, lane, offset }) => `${topic}/${lane} up to ${offset}`).join(', ')} as ${membership.memberId} generation ${membership.generation} is ${end}`);
      // As the real one: a refusal under an earlier membership says nothing about the present one.
      if (end === 'refused' && membership.memberId === this.#membership?.memberId && membership.generation === this.#membership.generation) this.#revoke();
      return end;
    } catch {
      return 'unknown'; // A lost connection says nothing either way.
    }
  }

  heartbeatAgeMs(): number | null {
    const { process } = this.#parts;
    const { scheduler } = process.core;
    const ageMs = this.#heartbeatSentAt === null ? null : scheduler.now - this.#heartbeatSentAt;
    scheduler.tell(process, () => `heartbeat ${ageMs ?? 'none'}`);
    return ageMs;
  }

  async #leave(): Promise<void> {
    this.#era += 1;
    const memberId = this.#memberId;
    this.#memberId = null;
    if (memberId === null) return;
    const { process, coordinator } = this.#parts;
    await process.ask({ site: 'group', server: 'coordinator', apply: () => coordinator.leave(memberId) }).catch(() => undefined);
  }

  async #join(): Promise<void> {
    this.#era += 1;
    const era = this.#era;
    const { process, coordinator } = this.#parts;
    while (this.#running && era === this.#era) {
      this.#revoke();
      const held = this.#held?.lanes ?? [];
      try {
        const joined = await process.ask({ site: 'group', server: 'coordinator', apply: () => coordinator.join(this.#memberId, held, process.name) });
        if (era === this.#era) this.#assigned(joined);
        return;
      } catch {
        await new Promise<void>((resolve) => void process.clock.after(RETRY_MS, resolve));
      }
    }
  }

  #assigned({ memberId, generation, lanes }: Joined): void {
    const membership = { memberId, generation };
    const before = this.#held;
    const retained = before !== null && isDirectSuccessor(before.membership, membership) ? lanes.filter((lane) => before.lanes.includes(lane)) : [];
    this.#memberId = memberId;
    this.#membership = membership;
    this.#held = { membership, lanes };
    this.#lanes = lanes;
    this.#fetchers.clear();
    this.#parts.process.core.trace(this.#parts.process.name, () => `is ${memberId} in generation ${generation} with lanes ${lanes.join(',')}, retained ${retained.join(',')}`);
    this.#parts.process.core.scheduler.tell(this.#parts.process, () => `assigned ${memberId} ${generation} ${lanes.join()}, retained ${retained.join()}`);
    this.#parts.handlers.onAssigned({ membership, lanes, retained });
    this.#beat(this.#era);
  }

  #revoke(): void {
    this.#heartbeatSentAt = null;
    if (this.#membership === null) return;
    this.#membership = null;
    this.#fetchers.clear();
    this.#parts.process.core.scheduler.tell(this.#parts.process, () => 'revoked');
    this.#parts.handlers.onRevoked();
  }

  #beat(era: number): void {
    const { process, coordinator } = this.#parts;
    const membership = this.#held?.membership;
    if (era !== this.#era || !this.#running || membership === undefined) return;
    const sentAt = process.core.scheduler.now;
    const { scheduler } = process.core;
    const again = (): void => void scheduler.at(scheduler.now + this.sessionTimeoutMs / 6, process, () => this.#beat(era), { timer: true, soon: true, unheard: true, name: `${process.name} beats again in ${era}` });
    process.ask({ site: 'heartbeat', server: 'coordinator', unheard: `beats in ${era}`, reads: true, apply: () => coordinator.heartbeat(membership) }).then(
      (answer) => {
        if (era !== this.#era) return;
        if (answer === 'ok') {
          if (this.#membership !== null) this.#heartbeatSentAt = sentAt;
          return again();
        }
        if (answer !== 'rebalance') {
          this.#memberId = answer === 'unknown_member' ? null : this.#memberId;
        }
        void this.#join();
      },
      () => {
        if (era === this.#era) again();
      },
    );
  }

  #fetch(fetcher: Fetcher): void {
    const { process, log } = this.#parts;
    const { topic, lane } = fetcher;
    if (fetcher.busy || this.#fetchers.get(`${topic}/${lane}`) !== fetcher || !process.alive) return;
    if (log.lane(topic, lane).length <= fetcher.position) return log.onGrowth(topic, lane, () => this.#fetch(fetcher));
    fetcher.busy = true;
    const { scheduler } = process.core;
    const name = `${process.name} fetches ${topic}/${lane} from ${fetcher.position} (${fetcher.no})`;
    const look = (): ReturnType<SimLog['lane']> => log.lane(topic, lane).slice(fetcher.position, fetcher.position + FETCH_MAX);
    if (scheduler.reader !== null) return scheduler.reader.read(process, { name, unheard: true }, look, (records) => void this.#deliver(fetcher, records));
    scheduler.at(scheduler.now + process.latency(), null, () => {
      if (process.core.isOut('broker')) {
        fetcher.busy = false;
        scheduler.at(scheduler.now + RETRY_MS, process, () => this.#fetch(fetcher), { timer: true });
        return;
      }
      const records = look();
      scheduler.at(scheduler.now + process.latency(), process, () => void this.#deliver(fetcher, records));
    });
  }

  async #deliver(fetcher: Fetcher, records: ReturnType<SimLog['lane']>): Promise<void> {
    const polled = this.#membership;
    if (polled === null || this.#fetchers.get(`${fetcher.topic}/${fetcher.lane}`) !== fetcher) return;
    fetcher.position += records.length;
    this.#parts.process.core.scheduler.tell(this.#parts.process, () => JSON.stringify(records));
    await this.#parts.handlers.onRecords(records, polled);
    fetcher.busy = false;
    this.#fetch(fetcher);
  }
}
