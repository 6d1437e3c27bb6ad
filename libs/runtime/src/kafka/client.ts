import { Kafka, logLevel, type logCreator } from 'kafkajs';
import './request-queue.js';

export interface ConnectOptions {
  readonly brokers: readonly string[];
  readonly clientId: string;
  /** How often a request is tried again; 8 when absent. */
  readonly retries?: number;
}

/** kafkajs warns of partitioner defaults and logs each rebalance as an error; what matters reaches callers as values. */
const silent: logCreator = () => () => undefined;

export function connect({ brokers, clientId, retries = 8 }: ConnectOptions): Kafka {
  return new Kafka({
    clientId,
    brokers: [...brokers],
    logLevel: logLevel.NOTHING,
    logCreator: silent,
    connectionTimeout: 3000,
    requestTimeout: 10_000,
    retry: { initialRetryTime: 100, maxRetryTime: 2000, retries },
  });
}
