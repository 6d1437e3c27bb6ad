import type { MigrationInterface, QueryRunner } from 'typeorm';

/**
 * The tables that every service has. `text` rather than `jsonb`: the data is published as it was
 * written, and `jsonb` can't hold a NUL (RFC 8259 allows its escape).
 */
export class Journal1764374400000 implements MigrationInterface {
  readonly name = 'Journal1764374400000';

  async up(runner: QueryRunner): Promise<void> {
    await runner.query(`
      create table journal (
        lane    int    not null,
        seq     bigint not null,
        topic   text   not null,
        prev    bigint not null,
        stream  text   not null,
        type    text   not null,
        version bigint,
        time    bigint not null,
        tenant  text   not null,
        hash    text,
        trace   text,
        data    text   not null,
        primary key (lane, seq)
      )`);
    // A run's stream: unique (run, version) is the last defence against two writers.
    await runner.query(`create unique index journal_stream on journal (stream, version) where version is not null`);
    await runner.query(`
      create table progress (
        lane      int primary key,
        epoch     bigint not null,
        offsets   text   not null default '{}',
        seen      text   not null default '{}',
        parked    text   not null default '{}',
        last      text   not null default '{}',
        next_seq  bigint not null default 1,
        published bigint not null default 0
      )`);
    await runner.query(`
      create table agenda (
        stream text primary key,
        lane   int not null,
        open   boolean not null,
        due_at bigint,
        tag    text
      )`);
    await runner.query(`create index agenda_open on agenda (lane) where open`);
    await runner.query(`create table shared (key text primary key, data text)`);
    await runner.query(`create table incarnation (id text not null)`);
    await runner.query(`insert into incarnation values (gen_random_uuid()::text)`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query('drop table incarnation, shared, agenda, progress, journal');
  }
}

/** A rebuild that was begun and not finished keeps every instance out. */
export class Rebuilding1764440000000 implements MigrationInterface {
  readonly name = 'Rebuilding1764440000000';

  async up(runner: QueryRunner): Promise<void> {
    await runner.query('alter table incarnation add column rebuilding boolean not null default false');
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query('alter table incarnation drop column rebuilding');
  }
}

/** Messages for runs that this version can't read wait here for one that can; `record` is the message as JSON. */
export class Shelf1764484800000 implements MigrationInterface {
  readonly name = 'Shelf1764484800000';

  async up(runner: QueryRunner): Promise<void> {
    await runner.query('create table shelf (lane int not null, id bigint not null, stream text not null, record text not null, primary key (lane, id))');
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query('drop table shelf');
  }
}

export const journalMigrations = [Journal1764374400000, Rebuilding1764440000000, Shelf1764484800000];
