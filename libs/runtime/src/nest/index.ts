export { BROKERS, CONTRACTS, LOG, SERVICE, SOURCE, type RunServiceOptions, type ServiceLog } from './open-service.js';
export { runService, startService } from './run-service.js';
export { rebuildService } from './rebuild-service.js';
export { databaseUrl, readSettings, ServiceSettings } from './settings.js';
export { LoopTransport, type Running } from './transport.js';
export { unreadyBecause } from './health.js';
