export type { ConnectOptions } from './client.js';
export { createEndsReader, type EndsReader } from './ends.js';
export { commitEndOf, createLaneGroup, isDirectSuccessor, SESSION_TIMEOUT_MS, type LaneGroupOptions } from './lane-group.js';
export { assignLanes } from './lane-assigner.js';
export { createWriter, laneOf, rounds } from './writer.js';
export { follow, type FollowOptions } from './follow.js';
export { describeGroups, describeTopics, topicFaults, type DescribedGroup, type DescribedTopic, type TopicFault } from './describe.js';
export { readLane, tail, type Tail, type TailOptions } from './tail.js';
export { durabilityProblem, ensurePoolTopics, ensureTopics, ensureTopicsOfPools, partitionEnds, partitionsOf, TopicError } from './topics.js';
