export { LOCAL_PARTITIONS, LOCAL_SESSION_TIMEOUT_MS, makeStackFolder, serviceEntry, SERVICES, startHoldfast, type HoldfastOptions, type ServiceName } from './holdfast.js';
export { StackError } from './errors.js';
export { startKafka, KAFKA_CONTROLLER_PORT_SETTING, KAFKA_PORT_SETTING, type KafkaOptions, type KafkaServer } from './kafka.js';
export { checkMachine, type MachineCheck } from './machine.js';
export { isReadyLine, ManagedProcess, type ProcessSpec } from './managed-process.js';
export { DEFAULT_PORTS, GATEWAY_PORT_SETTING, portsFrom, type StackPorts } from './ports.js';
export { createDatabase, databaseUrl, startPostgres, POSTGRES_PORT_SETTING, type PostgresOptions, type PostgresServer } from './postgres.js';
export type { Exit } from './server-process.js';
export { databaseOf, startStack, type ServiceSpec, type Stack, type StackOptions } from './stack.js';
