import { causesOf } from '@holdfast/kernel';
import type { Broker, Cluster } from 'kafkajs';
import type { Membership } from '../ports.js';
import type { Moment } from '../system.js';

/**
 * kafkajs's consumer replaces the generation at each sync and shows neither it nor the moment a
 * heartbeat was sent; a host must commit a task under the very generation in which it was polled.
 * So the calls to the group coordinator are watched as they pass: nothing is changed, delayed or
 * answered here. (What is changed of kafkajs is in `fetch-hold.ts` and `request-queue.ts`.)
 */
export interface CoordinatorEvents {
  /** A join begins: whatever was held is held no longer for certain. */
  onJoining(): void;
  onSynced(membership: Membership): void;
  onHeartbeatAnswered(membership: Membership, sentAt: Moment): void;
  /** An answer spoke of a rebalance or of a member that the group no longer knows. */
  onMembershipDoubted(): void;
}

interface GroupRequest {
  readonly memberId: string;
  readonly generationId?: number;
  readonly groupGenerationId?: number;
}

type GroupCall = (request: GroupRequest) => Promise<unknown>;

const DOUBTS: readonly string[] = ['REBALANCE_IN_PROGRESS', 'ILLEGAL_GENERATION', 'UNKNOWN_MEMBER_ID', 'FENCED_INSTANCE_ID', 'MEMBER_ID_REQUIRED'];

/** The Kafka error code that a kafkajs error carries, if any. */
export const errorType = (error: unknown): string | undefined =>
  typeof error === 'object' && error !== null && 'type' in error && typeof error.type === 'string' ? error.type : undefined;

/** Kafka's answers that stay as they are until somebody changes rights or settings. */
const REFUSALS = /AUTHORIZATION_FAILED$|^INVALID_|^UNSUPPORTED_|^INCONSISTENT_GROUP_PROTOCOL$|SASL|^SECURITY_DISABLED$|^MESSAGE_TOO_LARGE$|^RECORD_LIST_TOO_LARGE$|^POLICY_VIOLATION$/;

/** Whether a broker has answered for good: asked again, it will say the same. */
export function isRefusal(error: unknown): boolean {
  return causesOf(error).some((each) => each.name === 'KafkaJSSASLAuthenticationError' || each.name === 'KafkaJSNotImplemented' || REFUSALS.test(errorType(each) ?? ''));
}

/** What a broker has answered, such as `UNKNOWN_TOPIC_OR_PARTITION`; undefined where none has. */
export const brokerAnswer = (error: unknown): string | undefined => causesOf(error).flatMap((each) => errorType(each) ?? []).at(0);

/** Whether it came from the way to a broker, and not from us. */
export const isOfBroker = (error: unknown): boolean => causesOf(error).some(({ name }) => name.startsWith('KafkaJS'));

/** Whether kafkajs counts a failure as one that passes. */
export function isRetriable(error: unknown): boolean {
  const causes = causesOf(error);
  const last = causes.at(-1);
  return causes.some(({ name }) => name === 'KafkaJSNumberOfRetriesExceeded') || (last !== undefined && last.cause === undefined && 'retriable' in last && last.retriable === true);
}

export const speaksOfRebalance = (error: unknown): boolean => DOUBTS.includes(errorType(error) ?? '');

export function watchCoordinator(cluster: Cluster, events: CoordinatorEvents, now: () => Moment): void {
  const find = cluster.findGroupCoordinator.bind(cluster);
  cluster.findGroupCoordinator = async (group) => watched(await find(group), events, now);
}

function watched(broker: Broker, events: CoordinatorEvents, now: () => Moment): Broker {
  return new Proxy(broker, {
    get(target, name): unknown {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== 'function') return member;
      const call = member.bind(target) as GroupCall;
      switch (name) {
        case 'joinGroup':
          return (request: GroupRequest) => {
            events.onJoining();
            return call(request);
          };
        case 'syncGroup':
          return async (request: GroupRequest) => {
            const answer = await call(request);
            events.onSynced({ memberId: request.memberId, generation: request.generationId ?? -1 });
            return answer;
          };
        case 'heartbeat':
          return async (request: GroupRequest) => {
            const sentAt = now();
            try {
              const answer = await call(request);
              events.onHeartbeatAnswered({ memberId: request.memberId, generation: request.groupGenerationId ?? -1 }, sentAt);
              return answer;
            } catch (error) {
              if (speaksOfRebalance(error)) events.onMembershipDoubted();
              throw error;
            }
          };
        default:
          return call;
      }
    },
  });
}
