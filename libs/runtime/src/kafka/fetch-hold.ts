import type { Broker, Cluster } from 'kafkajs';

type Fetch = (request: object) => Promise<unknown>;

/**
 * How long a broker may hold back an answer that has nothing in it, milliseconds. kafkajs has one setting for
 * this and for its sleep while no lane is open: here the sleep is short, since it stands between an assignment
 * and the first record, and the wait long, since it ends with the first record and is what an idle process does.
 */
export function holdFetches(cluster: Cluster, maxWaitTime: number): void {
  const find = cluster.findBroker.bind(cluster);
  cluster.findBroker = async (node) => held(await find(node), maxWaitTime);
}

const held = (broker: Broker, maxWaitTime: number): Broker =>
  new Proxy(broker, {
    get(target, name): unknown {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== 'function') return member;
      const call = member.bind(target) as Fetch;
      return name === 'fetch' ? (request: object) => call({ ...request, maxWaitTime }) : call;
    },
  });
