export { exactBigint, exactTypes, openDatabase, type DatabaseOptions } from './data-source.js';
export { PgStore } from './pg-store.js';
export { journalMigrations } from './schema.js';
export type * from './types.js';
