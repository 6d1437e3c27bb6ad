import type { CommitEnd, CommittedOffset, Membership } from '@holdfast/runtime';
import { assignLanes } from '@holdfast/runtime/kafka';
import type { Core } from './core.js';

export interface Joined extends Membership {
  readonly lanes: readonly number[];
}

interface Member {
  readonly id: string;
  held: readonly number[];
  seenAt: number;
  /** A look at whether it has shown life is due. */
  watched: boolean;
  /** Present while it waits for the rebalance to complete. */
  joining: ((joined: Joined) => void) | null;
}

export type HeartbeatAnswer = 'ok' | 'rebalance' | 'unknown_member' | 'illegal_generation';

const isOfHosts = (topic: string): boolean => /^(tool|run)\.tasks\./.test(topic);

/** Kafka's group coordinator: members with sessions, generations, rebalances, and commits that carry both. */
export class Coordinator {
  generation = 0;
  readonly committed = new Map<string, CommittedOffset>();
  readonly #members = new Map<string, Member>();
  #rebalancing = false;
  readonly #owners = new Map<number, string>();
  #count = 0;
  #cancelDeadline: (() => void) | null = null;

  constructor(
    private readonly core: Core,
    readonly id: string,
    readonly lanes: number,
    readonly sessionTimeoutMs: number,
    readonly rebalanceTimeoutMs: number,
  ) {}

  join(memberId: string | null, held: readonly number[], name: string): Promise<Joined> {
    const known = memberId === null ? undefined : this.#members.get(memberId);
    this.#count += known === undefined ? 1 : 0;
    const member: Member = known ?? { id: `${name}/${this.#count}`, held, seenAt: 0, watched: false, joining: null };
    this.#members.set(member.id, member);
    member.held = held;
    return new Promise((resolve) => {
      member.joining = resolve;
      this.#rebalance();
    });
  }

  /** Where it stands, in words. */
  standing(): string {
    const members = [...this.#members.values()].map((member) => [member.id, member.held, member.seenAt, member.watched, member.joining !== null]);
    return JSON.stringify([this.id, this.generation, this.#rebalancing, this.#count, members, [...this.committed], [...this.#owners]]);
  }

  /** Nobody is on the way in or out, and it has so many members. */
  isSettled(members: number): boolean {
    return !this.#rebalancing && this.#members.size === members;
  }

  /** Whether another member has been given a lane that this process had. */
  isAnothers(lane: number, process: string): boolean {
    const owner = this.#owners.get(lane);
    return owner !== undefined && !owner.startsWith(`${process}/`);
  }

  /** Time has leapt: nobody is thought silent for it. */
  leapt(byMs: number): void {
    for (const member of this.#members.values()) member.seenAt += byMs;
  }

  /** Counts a process's member out, alive as it may be: it was not heard in time. */
  countOut(process: string): void {
    for (const id of this.#members.keys()) if (id.startsWith(`${process}/`)) this.leave(id);
  }

  leave(memberId: string): void {
    if (this.#members.delete(memberId)) this.#rebalance();
  }

  heartbeat({ memberId, generation }: Membership): HeartbeatAnswer {
    const member = this.#members.get(memberId);
    if (member === undefined) return 'unknown_member';
    if (generation !== this.generation) return 'illegal_generation';
    this.#seen(member);
    return this.#rebalancing ? 'rebalance' : 'ok';
  }

  /** As Kafka has it: while members are still joining, the generation before is good for commits. */
  commit({ memberId, generation }: Membership, offsets: readonly { topic: string; lane: number; offset: number; metadata: string }[]): CommitEnd {
    const member = this.#members.get(memberId);
    if (member === undefined || generation !== this.generation) return 'refused';
    this.#seen(member);
    for (const { topic, lane, offset, metadata } of offsets) {
      const before = this.committed.get(`${topic}/${lane}`)?.offset ?? 0;
      // A host's offset is all that says what has fired. A service's is information: its next holder reads on from the
      // database, which may stand before what came to nothing and was told of already.
      if (offset < before && isOfHosts(topic)) this.core.violated('6.1', `${memberId} committed ${topic}/${lane} back from ${before} to ${offset}`);
      this.committed.set(`${topic}/${lane}`, { offset, metadata });
    }
    return 'accepted';
  }

  #seen(member: Member): void {
    const { scheduler } = this.core;
    member.seenAt = scheduler.now;
    if (!member.watched) this.#watch(member, scheduler.now);
  }

  /** Looks at a member when its session would be over. */
  #watch(member: Member, seenAt: number): void {
    member.watched = true;
    this.core.scheduler.at(seenAt + this.sessionTimeoutMs, null, () => this.#expire(member), { timer: true, name: `${this.id} watches ${member.id}` });
  }

  #expire(member: Member): void {
    member.watched = false;
    if (this.#members.get(member.id) !== member) return;
    // A coordinator that is away counts nobody out; when it is back, every member has its session anew.
    if (this.core.isOut('broker')) return this.#seen(member);
    if (member.joining !== null) return;
    if (member.seenAt + this.sessionTimeoutMs > this.core.scheduler.now) return this.#watch(member, member.seenAt);
    this.core.trace(this.id, `member ${member.id} has shown no life: out`);
    this.#members.delete(member.id);
    this.#rebalance();
  }

  #rebalance(): void {
    if (!this.#rebalancing) {
      this.#rebalancing = true;
      const { scheduler } = this.core;
      this.core.trace(this.id, 'a rebalance begins');
      this.#cancelDeadline = scheduler.at(scheduler.now + this.rebalanceTimeoutMs, null, () => {
        for (const [id, { joining }] of this.#members) if (joining === null) this.#members.delete(id);
        this.#complete();
      }, { timer: true, name: `${this.id} waits for members of ${this.generation + 1}` });
    }
    // A moment for others that start at once, as `group.initial.rebalance.delay.ms`.
    this.core.scheduler.at(this.core.scheduler.now + 5, null, () => {
      if (this.#rebalancing && [...this.#members.values()].every(({ joining }) => joining !== null)) this.#complete();
    }, { soon: true, name: `${this.id} looks who has come for ${this.generation + 1}` });
  }

  #complete(): void {
    this.#cancelDeadline?.();
    this.#cancelDeadline = null;
    this.#rebalancing = false;
    this.generation += 1;
    const { generation } = this;
    const assigned = assignLanes(this.lanes, new Map([...this.#members].map(([id, { held }]) => [id, held])));
    this.core.trace(this.id, () => `generation ${generation}: ${[...assigned].map(([id, lanes]) => `${id} has ${lanes.join(',')}`).join('; ')}`);
    for (const [id, lanes] of assigned) for (const lane of lanes) this.#owners.set(lane, id);
    for (const member of this.#members.values()) {
      const tell = member.joining;
      member.joining = null;
      this.#seen(member);
      tell?.({ memberId: member.id, generation, lanes: assigned.get(member.id) ?? [] });
    }
  }
}
