import { badPort } from './errors.js';
import { KAFKA_CONTROLLER_PORT_SETTING, KAFKA_PORT_SETTING } from './kafka.js';
import { POSTGRES_PORT_SETTING } from './postgres.js';

/** Those left out are chosen free. */
export type StackPorts = Readonly<{ kafka?: number | undefined; kafkaController?: number | undefined; postgres?: number | undefined; gateway?: number | undefined }>;

export const GATEWAY_PORT_SETTING = 'HOLDFAST_HTTP_PORT';

/** Beside the usual 9092 and 5432, which a developer's own servers are likely to hold. */
export const DEFAULT_PORTS = { kafka: 19092, kafkaController: 19093, postgres: 15432, gateway: 18080 } as const;

/** The fixed ports of `holdfast up`, so that other programs find the stack at the same place every day. */
export function portsFrom(env: NodeJS.ProcessEnv = process.env): Readonly<Record<keyof StackPorts, number>> {
  return {
    kafka: portOf(env, KAFKA_PORT_SETTING) ?? DEFAULT_PORTS.kafka,
    kafkaController: portOf(env, KAFKA_CONTROLLER_PORT_SETTING) ?? DEFAULT_PORTS.kafkaController,
    postgres: portOf(env, POSTGRES_PORT_SETTING) ?? DEFAULT_PORTS.postgres,
    gateway: portOf(env, GATEWAY_PORT_SETTING) ?? DEFAULT_PORTS.gateway,
  };
}

function portOf(env: NodeJS.ProcessEnv, setting: string): number | undefined {
  const value = env[setting];
  if (value === undefined || value === '') return undefined;
  const port = Number(value);
  if (!Number.isInteger(port) || port < 1 || port > 65_535) throw badPort(setting, value);
  return port;
}
