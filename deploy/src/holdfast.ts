import { chmod, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ensureTopics } from '@holdfast/runtime/kafka';
import { fileURLToPath } from 'node:url';
import { GATEWAY_PORT_SETTING } from './ports.js';
import { startStack, type Stack, type StackOptions } from './stack.js';

/** Milliseconds after which the local stack takes a silent process for dead: short, so that lanes move soon. */
export const LOCAL_SESSION_TIMEOUT_MS = 2000;
export const LOCAL_PARTITIONS = 4;

/** All services with a journal: the order in which they are started, and in which a restored stack rebuilds them. */
export const SERVICES = ['orchestrator', 'ledger', 'reconciliation'] as const;
export type ServiceName = (typeof SERVICES)[number];

export interface HoldfastOptions extends Omit<StackOptions, 'services' | 'prepare' | 'partitions'> {
  readonly partitions?: number;
  /** How many instances of each service. */
  readonly instances?: Partial<Record<ServiceName, number>>;
  /** With the gateway too, on `ports.gateway` or one that is free; what it needs in its environment besides. */
  readonly gateway?: NodeJS.ProcessEnv | undefined;
}

/** Entry of a service's process, as built. */
export const serviceEntry = (service: ServiceName | 'gateway'): string => fileURLToPath(import.meta.resolve(`@holdfast/${service}/main`));

/** Kafka, PostgreSQL and all Holdfast services. */
export function startHoldfast({ partitions = LOCAL_PARTITIONS, instances = {}, env, gateway, ...options }: HoldfastOptions): Promise<Stack> {
  return startStack({
    ...options,
    partitions,
    env: { HOLDFAST_SESSION_TIMEOUT_MS: String(LOCAL_SESSION_TIMEOUT_MS), ...env },
    services: [
      ...SERVICES.map((name) => ({ name, instances: instances[name] ?? 1, entry: serviceEntry(name) })),
      ...(gateway === undefined ? [] : [{ name: 'gateway', instances: 1, entry: serviceEntry('gateway'), env: { ...gateway, [GATEWAY_PORT_SETTING]: String(options.ports?.gateway ?? 0) } }]),
    ],
    prepare: (brokers, count) => ensureTopics(brokers, count),
  });
}

/** A fresh temporary folder for a stack. PostgreSQL runs as a user of its own under root and has to enter it. */
export async function makeStackFolder(prefix: string): Promise<string> {
  const dir = await mkdtemp(path.join(tmpdir(), prefix));
  await chmod(dir, 0o711);
  return dir;
}
