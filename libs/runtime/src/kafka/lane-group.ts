import type { Cluster, Consumer, ConsumerRunConfig, EachBatchPayload, KafkaMessage } from 'kafkajs';
import type { Assignment, CommitEnd, CommittedOffset, LaneGroup, LaneGroupHandlers, LogRecord, Membership } from '../ports.js';
import { ageMs, pause, systemClock, systemMoment, type Moment } from '../system.js';
import { connect, type ConnectOptions } from './client.js';
import { errorType, isRefusal, isRetriable, speaksOfRebalance, watchCoordinator } from './coordinator-watch.js';
import { holdFetches } from './fetch-hold.js';
import { laneAssigner } from './lane-assigner.js';

export interface LaneGroupOptions extends ConnectOptions {
  readonly groupId: string;
  readonly topics: readonly string[];
  /** How long the group keeps a member that sends no heartbeat, milliseconds. */
  readonly sessionTimeoutMs?: number;
  readonly handlers: LaneGroupHandlers;
  readonly now?: () => Moment;
}

/** Kafka's own default minimum; a local stack sets less, for a quicker take-over. */
export const SESSION_TIMEOUT_MS = 6000;
/** How long nothing is looked for while no lane is open. */
const SLEEP_MS = 50;
/** How long a broker may hold back an empty answer. A heartbeat, a rebalance and a stop wait for it at most. */
const HOLD_MS = 250;
const HEARTBEATS_A_SESSION = 6;
const REBALANCE_TIMEOUT_MS = 10_000;
const OFFSET_TRIES_MAX = 10;
/** Of one request of the consumer, before it counts as crashed: kafkajs's own default. */
const JOIN_RETRIES = 5;
const REJOIN_FIRST_MS = 100;
const REJOIN_MOST_MS = 5000;
/** How long leaving waits for a join that is under way: it can't be broken off, and what joins after we have gone stays a member until its session is over. */
const JOIN_WAIT_MS = 5000;

/** A lane group on real Kafka. Offsets are committed by `commit` alone; positions are set by `open` alone. */
export function createLaneGroup(options: LaneGroupOptions): LaneGroup {
  return new KafkaLaneGroup(options);
}

/** Same member, next generation: nobody else can have held the lane in between. */
export function isDirectSuccessor(before: Membership | null, after: Membership): boolean {
  return before !== null && before.memberId === after.memberId && after.generation === before.generation + 1;
}

class KafkaLaneGroup implements LaneGroup {
  readonly sessionTimeoutMs: number;
  readonly #options: LaneGroupOptions;
  readonly #consumer: Consumer;
  readonly #now: () => Moment;
  #cluster: Cluster | null = null;
  /** Present while the group counts this member in; null from the first sign of a rebalance on. */
  #membership: Membership | null = null;
  #synced: Membership | null = null;
  #heartbeatSentAt: Moment | null = null;
  /** While we are outside the group: when we last left it or tried to join it. */
  #outsideSince: Moment;
  #lanes: readonly number[] = [];
  #held: { membership: Membership; lanes: readonly number[] } | null = null;
  /** Counts syncs; a fetch that began under an earlier one delivers nothing. */
  #era = 0;
  readonly #fetchEra = new Map<string, number>();
  readonly #open = new Set<string>();
  #started = false;
  /**
   * Starts and stops of the consumer, one after the other: kafkajs keeps one runner in mind, and one that is stopped
   * while it starts, or started beside another, goes on for ever as a second member of the group.
   */
  #turn: Promise<void> = Promise.resolve();
  /** A try to join again whose turn has not come yet. */
  #toRejoin: Promise<void> | null = null;
  #joinedOnce = false;
  /** Pause before the next try to join again. */
  #rejoinMs = REJOIN_FIRST_MS;
  #handlerFailed = false;

  constructor(options: LaneGroupOptions) {
    this.#options = options;
    this.#now = options.now ?? systemMoment;
    this.#outsideSince = this.#now();
    this.sessionTimeoutMs = options.sessionTimeoutMs ?? SESSION_TIMEOUT_MS;
    this.#consumer = connect(options).consumer({
      groupId: options.groupId,
      sessionTimeout: this.sessionTimeoutMs,
      // Never shorter than the session: else a member could be replaced while its hold still counts as fresh.
      rebalanceTimeout: Math.max(REBALANCE_TIMEOUT_MS, this.sessionTimeoutMs),
      heartbeatInterval: Math.floor(this.sessionTimeoutMs / HEARTBEATS_A_SESSION),
      maxWaitTimeInMs: SLEEP_MS,
      maxBytesPerPartition: 2 * 1024 * 1024,
      allowAutoTopicCreation: false,
      metadataMaxAge: 60_000,
      // Only we start it again: it would do so whatever we do meanwhile.
      retry: { retries: JOIN_RETRIES, restartOnFailure: () => Promise.resolve(false) },
      partitionAssigners: [laneAssigner(() => this.#held?.lanes ?? [], (cluster) => this.#watch(cluster))],
    });
    this.#listen();
  }

  start(): Promise<void> {
    return this.#inTurn(async () => {
      await this.#consumer.connect();
      await this.#consumer.subscribe({ topics: [...this.#options.topics], fromBeginning: true });
      this.#started = true;
      await this.#consumer.run(this.#runConfig());
    });
  }

  async stop(): Promise<void> {
    this.#started = false;
    await settledWithin(this.#turn, JOIN_WAIT_MS);
    await this.#consumer.disconnect();
    this.#revoke();
    this.#held = null;
  }

  rejoin(): Promise<void> {
    this.#handlerFailed = false;
    this.#revoke();
    this.#held = null;
    this.#toRejoin ??= this.#inTurn(async () => {
      this.#toRejoin = null;
      // Counted in again meanwhile, by a join that was under way.
      if (!this.#started || this.#membership !== null) return;
      await this.#consumer.stop();
      await this.#consumer.run(this.#runConfig());
    });
    return this.#toRejoin;
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => undefined);
    return done;
  }

  open(positions: readonly { topic: string; lane: number; offset: number }[]): void {
    for (const { topic, lane, offset } of positions) {
      if (!this.#lanes.includes(lane)) continue;
      this.#consumer.seek({ topic, partition: lane, offset: String(offset) });
      this.#open.add(`${topic}/${lane}`);
      this.#consumer.resume([{ topic, partitions: [lane] }]);
    }
  }

  async committed(topic: string, lanes: readonly number[]): Promise<Map<number, CommittedOffset>> {
    const coordinator = await this.#clusterOrThrow().findGroupCoordinator({ groupId: this.#options.groupId });
    const { responses } = await coordinator.offsetFetch({
      groupId: this.#options.groupId,
      // kafkajs types the request like an answer; only the partition number is sent.
      topics: [{ topic, partitions: lanes.map((partition) => ({ partition, offset: '-1' })) }],
    });
    const result = new Map<number, CommittedOffset>();
    for (const answer of responses.flatMap(({ partitions }) => partitions)) {
      const { partition, offset } = answer;
      const metadata = 'metadata' in answer && typeof answer.metadata === 'string' ? answer.metadata : '';
      result.set(partition, { offset: Number(offset) < 0 ? null : Number(offset), metadata });
    }
    return result;
  }

  async offsets(topic: string): Promise<Map<number, { first: number; next: number }>> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#offsets(topic);
      } catch (error) {
        if (tries >= OFFSET_TRIES_MAX) throw error;
        // A topic just made, or a leader just changed: the cached metadata is old.
        await pause(systemClock, 50 * tries);
        await this.#clusterOrThrow().refreshMetadata().catch(() => undefined);
      }
    }
  }

  async #offsets(topic: string): Promise<Map<number, { first: number; next: number }>> {
    const cluster = this.#clusterOrThrow();
    const partitions = cluster.findTopicPartitionMetadata(topic).map(({ partitionId }) => ({ partition: partitionId }));
    const [first] = await cluster.fetchTopicsOffset([{ topic, partitions, fromBeginning: true }]);
    const [next] = await cluster.fetchTopicsOffset([{ topic, partitions, fromBeginning: false }]);
    const result = new Map<number, { first: number; next: number }>();
    for (const { partition, offset } of next?.partitions ?? []) {
      const start = first?.partitions.find((other) => other.partition === partition)?.offset ?? '0';
      result.set(partition, { first: Number(start), next: Number(offset) });
    }
    return result;
  }

  async commit(membership: Membership, offsets: readonly { topic: string; lane: number; offset: number; metadata: string }[]): Promise<CommitEnd> {
    const byTopic = new Map<string, { partition: number; offset: string; metadata: string }[]>();
    for (const { topic, lane, offset, metadata } of offsets) {
      const partitions = byTopic.get(topic) ?? [];
      partitions.push({ partition: lane, offset: String(offset), metadata });
      byTopic.set(topic, partitions);
    }
    try {
      const coordinator = await this.#clusterOrThrow().findGroupCoordinator({ groupId: this.#options.groupId });
      await coordinator.offsetCommit({
        groupId: this.#options.groupId,
        groupGenerationId: membership.generation,
        memberId: membership.memberId,
        topics: [...byTopic].map(([topic, partitions]) => ({ topic, partitions })),
      });
      return 'accepted';
    } catch (error) {
      // A refusal under an earlier membership says nothing about the present one.
      const mine = this.#membership;
      if (speaksOfRebalance(error) && mine?.memberId === membership.memberId && mine.generation === membership.generation) this.#revoke();
      return commitEndOf(error);
    }
  }

  heartbeatAgeMs(): number | null {
    return this.#heartbeatSentAt === null ? null : ageMs(this.#heartbeatSentAt, this.#now());
  }

  #clusterOrThrow(): Cluster {
    if (this.#cluster === null) throw new Error(`group ${this.#options.groupId} has not been started`);
    return this.#cluster;
  }

  #watch(cluster: Cluster): void {
    this.#cluster = cluster;
    holdFetches(cluster, Math.min(HOLD_MS, Math.floor(this.sessionTimeoutMs / HEARTBEATS_A_SESSION)));
    watchCoordinator(
      cluster,
      {
        onJoining: () => this.#revoke(),
        onSynced: (membership) => {
          this.#era += 1;
          this.#synced = membership;
        },
        onHeartbeatAnswered: (membership, sentAt) => {
          const mine = this.#membership;
          if (mine !== null && mine.generation === membership.generation && mine.memberId === membership.memberId) this.#heartbeatSentAt = sentAt;
        },
        onMembershipDoubted: () => this.#revoke(),
      },
      this.#now,
    );
  }

  #listen(): void {
    const consumer = this.#consumer;
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      if (this.#synced !== null) this.#assigned(this.#synced, payload.memberAssignment);
    });
    // Where kafkajs starts to fetch, the era is noted: what comes back belongs to it.
    consumer.on(consumer.events.FETCH_START, ({ payload }) => {
      this.#fetchEra.set(String(payload.nodeId), this.#era);
      this.#rejoinIfForgotten();
    });
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      this.#revoke();
      this.#held = null;
      // Its connections are closing yet: a start at once would write to one of them.
      void this.#inTurn(() => pause(systemClock, REJOIN_FIRST_MS));
      // What kafkajs takes for final often isn't: a coordinator not found yet, a connection lost between two calls.
      const mayPass = this.#joinedOnce && !this.#handlerFailed && !isRefusal(payload.error);
      if (mayPass || isRetriable(payload.error)) this.#rejoinLater(this.#rejoinMs, payload.error);
      else this.#options.handlers.onCrash(payload.error);
    });
  }

  #assigned(membership: Membership, byTopic: Readonly<Record<string, readonly number[]>>): void {
    const lanes = [...new Set(Object.values(byTopic).flat())].sort((a, b) => a - b);
    const before = this.#held;
    const retained = before !== null && isDirectSuccessor(before.membership, membership) ? lanes.filter((lane) => before.lanes.includes(lane)) : [];
    this.#open.clear();
    this.#lanes = lanes;
    this.#membership = membership;
    this.#held = { membership, lanes };
    this.#joinedOnce = true;
    this.#rejoinMs = REJOIN_FIRST_MS;
    if (lanes.length > 0) this.#consumer.pause(this.#options.topics.map((topic) => ({ topic, partitions: [...lanes] })));
    const assignment: Assignment = { membership, lanes, retained };
    this.#options.handlers.onAssigned(assignment);
  }

  /**
   * kafkajs joins again when the group has forgotten its member. Where that join fails for another reason (the coordinator
   * loads, as after a broker's long pause; no answer), it goes on fetching as nobody's member, and for ever: without a
   * member id it sends no heartbeat that could tell it.
   */
  #rejoinIfForgotten(): void {
    if (this.#membership === null && ageMs(this.#outsideSince, this.#now()) > this.sessionTimeoutMs) this.#rejoinLater(0, new Error('the group has forgotten this member'));
  }

  #rejoinLater(ms: number, because: Error): void {
    this.#options.handlers.onTrouble?.(because);
    this.#outsideSince = this.#now();
    this.#rejoinMs = Math.min(Math.max(ms, REJOIN_FIRST_MS) * 2, REJOIN_MOST_MS);
    const rejoining = async (): Promise<void> => {
      await pause(systemClock, ms);
      if (this.#started && this.#membership === null) await this.rejoin();
    };
    rejoining().catch((error: unknown) => this.#options.handlers.onCrash(error instanceof Error ? error : new Error(String(error))));
  }

  #revoke(): void {
    this.#outsideSince = this.#now();
    this.#heartbeatSentAt = null;
    if (this.#membership === null) return;
    this.#membership = null;
    this.#open.clear();
    this.#options.handlers.onRevoked();
  }

  #runConfig(): ConsumerRunConfig {
    return {
      autoCommit: false,
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: 64,
      eachBatch: (payload) => this.#deliver(payload),
    };
  }

  async #deliver({ batch, resolveOffset, heartbeat, isRunning, isStale }: EachBatchPayload): Promise<void> {
    const polled = this.#membership;
    if (polled === null || !this.#fetchedInThisEra() || !isRunning() || isStale() || !this.#open.has(`${batch.topic}/${batch.partition}`)) return;
    const done = this.#options.handlers.onRecords(batch.messages.map((message) => toRecord(batch.topic, batch.partition, message)), polled);
    done.then(
      () => (this.#handlerFailed = false),
      () => (this.#handlerFailed = true),
    );
    resolveOffset(batch.lastOffset());
    // A handler that holds back must not cost the membership.
    while (!(await settledWithin(done, this.sessionTimeoutMs / HEARTBEATS_A_SESSION))) await heartbeat();
  }

  #fetchedInThisEra(): boolean {
    return this.#clusterOrThrow().getNodeIds().every((node) => this.#fetchEra.get(String(node)) === this.#era);
  }
}

/** Whether a promise settles within a time (milliseconds). */
async function settledWithin(promise: Promise<void>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * An answer that names an error was not applied, but for a time-out inside the broker; no answer
 * (connection lost, request timed out) says nothing either way.
 */
export function commitEndOf(error: unknown): CommitEnd {
  const type = errorType(error);
  return type === undefined || type === 'REQUEST_TIMED_OUT' || type === 'UNKNOWN' ? 'unknown' : 'refused';
}

function toRecord(topic: string, lane: number, message: KafkaMessage): LogRecord {
  return {
    topic,
    lane,
    offset: Number(message.offset),
    key: message.key === null ? null : message.key.toString(),
    headers: message.headers ?? {},
    value: message.value === null ? null : message.value.toString(),
    time: Number(message.timestamp),
  };
}
