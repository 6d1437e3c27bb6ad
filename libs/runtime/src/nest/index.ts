export { BROKERS, CONTRACTS, LOG, SERVICE, SOURCE, type RunServiceOptions, type ServiceLog } from './open-service.js';
export { runService, startService } from './run-service.js';
export { rebuildService } from './rebuild-service.js';
export { readSettings, serviceDatabaseUrl, ServiceSettings } from './settings.js';
export { LoopTransport, type Running } from './transport.js';
export { healthOf, unreadyBecause, type Around } from './health.js';
export { poolOf } from './watch.js';
export { openLog } from './log.js';
