import type { MigrationInterface, QueryRunner } from 'typeorm';

/** What the gateway alone knows: who may ask, which generation of its read models is shown, and answers to keep. */
export class Gateway1764460800000 implements MigrationInterface {
  readonly name = 'Gateway1764460800000';

  async up(runner: QueryRunner): Promise<void> {
    // `secret_hash`: SHA-256 of 256 random bits; nothing from which a key could be made again is stored.
    await runner.query(`
      create table api_key (
        id          text primary key,
        tenant      text   not null,
        name        text   not null,
        secret_hash text   not null,
        roles       text[] not null,
        tools       text[],
        amount_max  numeric,
        created_at  bigint not null,
        expires_at  bigint,
        revoked_at  bigint,
        used_at     bigint
      )`);
    await runner.query(`create index api_key_tenant on api_key (tenant, created_at)`);
    await runner.query(`
      create table idempotency (
        tenant     text   not null,
        key        text   not null,
        asker      text   not null,
        request    text   not null,
        locked_to  bigint not null,
        status     int,
        headers    text,
        body       text,
        expires_at bigint not null,
        primary key (tenant, asker, key)
      )`);
    await runner.query(`create index idempotency_expiry on idempotency (expires_at)`);
    // One is shown, at most one is being made; a retired one goes when nobody can be reading it any more.
    await runner.query(`
      create table generation (
        id         int primary key,
        state      text   not null check (state in ('live', 'building', 'retired')),
        changed_at bigint not null
      )`);
    await runner.query(`create unique index generation_live on generation (state) where state = 'live'`);
    await runner.query(`create unique index generation_building on generation (state) where state = 'building'`);
    await runner.query(`
      create table webhook (
        id         text primary key,
        tenant     text   not null,
        url        text   not null,
        types      text[] not null,
        created_at bigint not null,
        removed_at bigint
      )`);
    await runner.query(`
      create table delivery (
        id           text primary key,
        webhook      text   not null references webhook (id),
        event        text   not null,
        type         text   not null,
        body         text   not null,
        state        text   not null check (state in ('pending', 'delivered', 'dead')),
        tries        int    not null default 0,
        next_at      bigint,
        last_problem text,
        created_at   bigint not null,
        ended_at     bigint
      )`);
    await runner.query(`create index delivery_due on delivery (next_at) where state = 'pending'`);
    await runner.query(`create index delivery_webhook on delivery (webhook, created_at desc, id desc)`);
    // How far events were looked at for webhooks: apart from the read models, whose rebuild must send nothing again.
    await runner.query(`create table webhook_position (topic text not null, lane int not null, next bigint not null, primary key (topic, lane))`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query('drop table webhook_position, delivery, webhook, generation, idempotency, api_key');
  }
}

/** Read models know the shape of their tables, so that those of an earlier version are made anew. */
export class GenerationShape1764547200000 implements MigrationInterface {
  readonly name = 'GenerationShape1764547200000';

  async up(runner: QueryRunner): Promise<void> {
    await runner.query('alter table generation add column shape int not null default 1');
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query('alter table generation drop column shape');
  }
}

/** What is due is looked for by webhook, and what has ended by how long ago that was. */
export class DeliveriesByWebhook1764633600000 implements MigrationInterface {
  readonly name = 'DeliveriesByWebhook1764633600000';

  async up(runner: QueryRunner): Promise<void> {
    await runner.query(`create index delivery_due_of on delivery (webhook, next_at, id) where state = 'pending'`);
    await runner.query('drop index delivery_due');
    await runner.query(`create index delivery_ended on delivery (ended_at) where state <> 'pending'`);
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query(`create index delivery_due on delivery (next_at) where state = 'pending'`);
    await runner.query('drop index delivery_due_of, delivery_ended');
  }
}

export const gatewayMigrations = [Gateway1764460800000, GenerationShape1764547200000, DeliveriesByWebhook1764633600000];
