import type { EntityManager } from 'typeorm';

/** Schema of a generation of the read models: numbered, so that a new one is made beside the one that is shown. */
export const schemaOf = (generation: number): string => `view_${generation}`;

/**
 * Tables of one generation. Documents are `text`: `jsonb` can't hold a NUL, which a value may. `next`
 * of `position` is what makes each record count once: it is moved in the transaction that takes it in.
 */
export async function createViews(tx: EntityManager, generation: number): Promise<void> {
  const schema = schemaOf(generation);
  const statements = [
    `create schema ${schema}`,
    `create table ${schema}.position (topic text not null, lane int not null, next bigint not null, primary key (topic, lane))`,
    `create table ${schema}.stream (topic text not null, subject text not null, version bigint not null, primary key (topic, subject))`,
    `create table ${schema}.event (
       topic text not null, lane int not null, "offset" bigint not null, subject text not null, tenant text not null,
       type text not null, version bigint not null, time bigint not null, hash text, command text, counts_as text, data text not null,
       primary key (topic, lane, "offset"))`,
    `create index on ${schema}.event (subject, topic, "offset")`,
    `create index on ${schema}.event (tenant, topic, lane, "offset")`,
    `create index on ${schema}.event (tenant, time)`,
    `create index on ${schema}.event (tenant, counts_as, time) where counts_as is not null`,
    `create index on ${schema}.event (subject, command) where command is not null`,
    `create table ${schema}.run (id text primary key, tenant text not null, status text not null, over boolean not null, agent text, accepted_at bigint not null, doc text not null)`,
    `create index on ${schema}.run (tenant, accepted_at desc, id desc)`,
    `create index on ${schema}.run (tenant, status, accepted_at desc, id desc)`,
    `create index on ${schema}.run (tenant, agent, accepted_at desc, id desc)`,
    // A cursor's place: "3.10" comes after "3.9".
    `create table ${schema}.step (run text not null, step text not null, place int[] not null, doc text not null, primary key (run, step))`,
    `create index on ${schema}.step (run, place)`,
    `create table ${schema}.effect (run text not null, step text not null, place int[] not null, tenant text not null, tool text, status text not null, since bigint not null, doc text not null, primary key (run, step))`,
    `create index on ${schema}.effect (tenant, status, since)`,
    `create table ${schema}.matter (run text not null, step text not null, attempt int not null, tenant text not null, status text not null, owner text, tool text not null, since bigint not null, doc text not null, primary key (run, step))`,
    `create index on ${schema}.matter (tenant, status, since, run, step)`,
    // Approvals that are asked for; which of them are still open depends on their runs too.
    `create table ${schema}.approval (run text not null, step text not null, tenant text not null, since bigint not null, status text not null, doc text not null, primary key (run, step))`,
    `create index on ${schema}.approval (tenant, since, run, step)`,
    `create table ${schema}.contract (key text primary key, kind text not null, name text not null, version text not null, doc text not null)`,
    `create table ${schema}.dead_letter (lane int not null, "offset" bigint not null, tenant text not null, at bigint not null, origin text not null, doc text not null, primary key (lane, "offset"))`,
    `create unique index on ${schema}.dead_letter (origin)`,
    `create index on ${schema}.dead_letter (tenant, at desc)`,
    `create table ${schema}.worker (id text primary key, at bigint not null, doc text not null)`,
    ...addedTables(schema),
  ];
  for (const statement of statements) await tx.query(statement);
}

/** Tables that came later. */
const addedTables = (schema: string): string[] => [
  // What a run's effects would be answered with, and its plans; `status` is the latest plan's, null where there was none.
  `create table if not exists ${schema}.plan (run text primary key, tenant text not null, status text, awaiting int not null, since bigint, doc text not null)`,
  `create index if not exists plan_since on ${schema}.plan (tenant, since, run) where since is not null`,
  // What each lane decided last of each brake; the version is that of the lane's own stream.
  `create table if not exists ${schema}.brake (lane int not null, name text not null, version bigint not null, is_set boolean not null, doc text not null, primary key (lane, name))`,
  `create index if not exists event_version on ${schema}.event (subject, topic, version)`,
  `create index if not exists run_id_prefix on ${schema}.run (tenant, id text_pattern_ops)`,
];

/** Shape of the tables that this version reads: a generation of another one is made anew. */
export const SHAPE = 2;

/** Adds to a generation of an earlier version what queries ask for. It holds what comes from now on, until the next generation holds all. */
export async function addMissing(tx: EntityManager, generation: number): Promise<void> {
  for (const statement of addedTables(schemaOf(generation))) await tx.query(statement);
}
