import { AssignerProtocol, type Cluster, type PartitionAssigner } from 'kafkajs';

/** Lanes by member, so that one member holds the same partition number of every topic. */
export type LanesByMember = ReadonlyMap<string, readonly number[]>;

/**
 * Spreads lanes evenly (sizes differ by one at most) and leaves each lane with the member that
 * holds it where evenness allows: a lane that stays needs no take-over.
 */
export function assignLanes(lanes: number, holding: LanesByMember): Map<string, number[]> {
  const members = [...holding.keys()].sort();
  const result = new Map<string, number[]>(members.map((member) => [member, []]));
  if (members.length === 0) return result;
  const most = Math.ceil(lanes / members.length);
  let roomAtMost = lanes - Math.floor(lanes / members.length) * members.length || members.length;
  const quota = new Map<string, number>();
  // Members that already hold many lanes get the larger shares, so that the fewest lanes move.
  for (const member of [...members].sort((a, b) => (holding.get(b)?.length ?? 0) - (holding.get(a)?.length ?? 0) || (a < b ? -1 : 1))) {
    quota.set(member, roomAtMost > 0 ? most : Math.floor(lanes / members.length));
    roomAtMost -= 1;
  }
  const taken = new Set<number>();
  for (const member of members) {
    for (const lane of holding.get(member) ?? []) {
      const mine = result.get(member) ?? [];
      if (lane >= 0 && lane < lanes && !taken.has(lane) && mine.length < (quota.get(member) ?? 0)) {
        mine.push(lane);
        taken.add(lane);
      }
    }
  }
  let next = 0;
  for (let lane = 0; lane < lanes; lane += 1) {
    if (taken.has(lane)) continue;
    while ((result.get(members[next] ?? '')?.length ?? 0) >= (quota.get(members[next] ?? '') ?? 0)) next += 1;
    result.get(members[next] ?? '')?.push(lane);
  }
  return result;
}

const encodeLanes = (lanes: readonly number[]): Buffer => Buffer.from(JSON.stringify(lanes));

function decodeLanes(data: Buffer): number[] {
  try {
    const lanes: unknown = JSON.parse(data.toString());
    return Array.isArray(lanes) ? lanes.filter((lane): lane is number => Number.isInteger(lane)) : [];
  } catch {
    return []; // A member of another version: it keeps nothing, which costs a take-over and no more.
  }
}

/** A kafkajs assigner for lanes. `held` tells which lanes this member holds at the moment of joining. */
export function laneAssigner(held: () => readonly number[], onCluster: (cluster: Cluster) => void): PartitionAssigner {
  return ({ cluster }) => {
    onCluster(cluster);
    return {
      name: 'holdfast-lanes',
      version: 1,
      protocol: ({ topics }) => ({
        name: 'holdfast-lanes',
        metadata: AssignerProtocol.MemberMetadata.encode({ version: 1, topics, userData: encodeLanes(held()) }),
      }),
      assign: ({ members, topics }) => {
        const holding = new Map(
          members.map(({ memberId, memberMetadata }) => [memberId, decodeLanes(AssignerProtocol.MemberMetadata.decode(memberMetadata)?.userData ?? Buffer.alloc(0))]),
        );
        const lanes = Math.max(0, ...topics.map((topic) => cluster.findTopicPartitionMetadata(topic).length));
        const assigned = assignLanes(lanes, holding);
        return Promise.resolve(
          [...assigned].map(([memberId, mine]) => ({
            memberId,
            memberAssignment: AssignerProtocol.MemberAssignment.encode({
              version: 1,
              assignment: Object.fromEntries(topics.map((topic) => [topic, mine])),
              userData: Buffer.alloc(0),
            }),
          })),
        );
      },
    };
  };
}
