import { openDatabase, type DatabaseOptions } from '@holdfast/runtime';
import { serviceDatabaseUrl } from '@holdfast/runtime/nest';
import type { DataSource, EntityManager } from 'typeorm';
import { gatewayMigrations } from './migrations.js';

/** Whatever takes a query: the database, or one transaction on it. */
export type Queries = Pick<EntityManager, 'query'> | Pick<DataSource, 'query'>;

/** The gateway's database on a server, with its migrations applied. `poolSize`: 2 or more, since migrations hold a lock on one connection and work on another. */
export const openGatewayDatabase = (server: string, applicationName: string, poolSize = 10): Promise<DataSource> => openDatabase({ ...gatewayDatabase(server, applicationName), poolSize });

export const gatewayDatabase = (server: string, applicationName: string): DatabaseOptions => ({ url: serviceDatabaseUrl(server, 'gateway'), applicationName, migrations: gatewayMigrations, journal: false });

export const rowsOf = async <Row>(queries: Queries, text: string, values: readonly unknown[] = []): Promise<Row[]> => (await queries.query(text, [...values])) as Row[];

/** As a column holds it: PostgreSQL's text has every character but NUL. */
export const storable = <Value>(value: Value): Value | string => (typeof value === 'string' ? value.replaceAll('\0', '\ufffd') : value);
