export { BROKERS, CONTRACTS, LOG, runService, SERVICE, SOURCE, startService, type RunServiceOptions, type ServiceLog } from './run-service.js';
export { databaseUrl, readSettings, ServiceSettings } from './settings.js';
export { LoopTransport, type Running } from './transport.js';
export { unreadyBecause } from './health.js';
