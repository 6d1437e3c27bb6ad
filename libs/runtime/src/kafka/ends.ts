import type { Admin } from 'kafkajs';
import { connect, type ConnectOptions } from './client.js';

export interface EndsReader {
  /** The next offset of each lane of a topic. Rejects where the broker does not say; nothing is tried again. */
  ends(topic: string): Promise<ReadonlyMap<number, number>>;
  close(): Promise<void>;
}

/** Reads ends of topics over a connection of its own: what waits there for a broker holds up no fetch and no heartbeat. */
export function createEndsReader({ brokers, clientId }: Pick<ConnectOptions, 'brokers' | 'clientId'>): EndsReader {
  const kafka = connect({ brokers, clientId: `${clientId}-ends`, retries: 0 });
  let admin: Promise<Admin> | null = null;
  let closed = false;
  const opened = (): Promise<Admin> => {
    if (closed) return Promise.reject(new Error('the reader is closed'));
    return (admin ??= (async () => {
      const made = kafka.admin();
      await made.connect();
      return made;
    })());
  };
  const forget = async (): Promise<void> => {
    const before = admin;
    admin = null;
    await (await before?.catch(() => undefined))?.disconnect().catch(() => undefined);
  };
  return {
    ends: async (topic) => {
      try {
        const offsets = await (await opened()).fetchTopicOffsets(topic);
        return new Map(offsets.map(({ partition, high }) => [partition, Number(high)]));
      } catch (error) {
        await forget();
        throw error;
      }
    },
    close: async () => {
      closed = true;
      await forget();
    },
  };
}
