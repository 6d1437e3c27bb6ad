export { exactBigint, exactTypes, migrationState, openDatabase, type DatabaseOptions, type MigrationState } from './data-source.js';
export { PgStore } from './pg-store.js';
export { journalMigrations } from './schema.js';
export type * from './types.js';
