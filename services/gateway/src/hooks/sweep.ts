import type { DataSource } from 'typeorm';
import { rowsOf } from '../store/database.js';

/** Rows that are removed in one statement. */
const AT_ONCE = 1000;
/** How long a removed webhook's rows stay: a transaction that took it for one that is there, and adds a delivery to it, is over by then. Milliseconds. */
export const REMOVED_AFTER_MS = 60 * 60_000;

/** How long deliveries are kept after their end. Milliseconds. */
export interface Keep {
  readonly deliveredMs: number;
  readonly deadMs: number;
}

/**
 * Removes deliveries, with the bodies that they hold, whose time is over. Until then they are listed, and dead
 * ones may be sent again. A removed webhook goes with all that it had: nobody can look at it. `now`: epoch milliseconds.
 */
export async function sweepDeliveries(database: DataSource, { deliveredMs, deadMs }: Keep, now: number): Promise<void> {
  await removed(database, 'delivery', `state = 'delivered' and ended_at <= $2`, now - deliveredMs);
  await removed(database, 'delivery', `state = 'dead' and ended_at <= $2`, now - deadMs);
  await removed(database, 'delivery', 'webhook in (select id from webhook where removed_at <= $2)', now - REMOVED_AFTER_MS);
  await removed(database, 'webhook', 'removed_at <= $2 and not exists (select from delivery where delivery.webhook = webhook.id)', now - REMOVED_AFTER_MS);
}

/** A row that is being changed, or that another instance removes, is passed over. */
async function removed(database: DataSource, table: 'delivery' | 'webhook', which: string, until: number): Promise<void> {
  for (let count = AT_ONCE; count === AT_ONCE; ) {
    const gone = await rowsOf(database, `with gone as (delete from ${table} where id in (select id from ${table} where ${which} limit $1 for update skip locked) returning id) select id from gone`, [AT_ONCE, until]);
    count = gone.length;
  }
}
