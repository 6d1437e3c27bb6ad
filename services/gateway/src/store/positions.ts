import type { EntityManager } from 'typeorm';
import { rowsOf } from './database.js';

/** Moves a lane's position in `table`, in the transaction that takes its records. False when it stands elsewhere by now: somebody else has taken them. */
export async function movePosition(tx: EntityManager, table: string, topic: string, lane: number, from: number, to: number): Promise<boolean> {
  const moved = await rowsOf(
    tx,
    `with moved as (
       insert into ${table} as p (topic, lane, next) values ($1, $2, $4)
       on conflict (topic, lane) do update set next = excluded.next where p.next = $3 returning next)
     select next from moved`,
    [topic, lane, from, to],
  );
  return moved.length > 0;
}
