import type { DataSource } from 'typeorm';
import { rowsOf } from '../store/database.js';

/** Deliveries that are removed in one statement. */
const AT_ONCE = 1000;

/** How long deliveries are kept after their end. Milliseconds. */
export interface Keep {
  readonly deliveredMs: number;
  readonly deadMs: number;
}

/**
 * Removes deliveries, with the bodies that they hold, whose time is over. Until then they are listed, and dead
 * ones may be sent again. `now`: epoch milliseconds.
 */
export async function sweepDeliveries(database: DataSource, { deliveredMs, deadMs }: Keep, now: number): Promise<void> {
  await removed(database, `state = 'delivered' and ended_at <= $2`, now - deliveredMs);
  await removed(database, `state = 'dead' and ended_at <= $2`, now - deadMs);
  // An event that came while its webhook was removed: nobody is to get it, and nobody can look at it.
  await removed(database, `state = 'pending' and next_at <= $2 and webhook in (select id from webhook where removed_at is not null)`, now);
}

/** One that is being sent again, or that another instance removes, is passed over. */
async function removed(database: DataSource, which: string, until: number): Promise<void> {
  for (let count = AT_ONCE; count === AT_ONCE; ) {
    const gone = await rowsOf(database, `with gone as (delete from delivery where id in (select id from delivery where ${which} limit $1 for update skip locked) returning id) select id from gone`, [AT_ONCE, until]);
    count = gone.length;
  }
}
