import { createHmac } from 'node:crypto';
import { crashPoint, systemClock } from '@holdfast/runtime';
import { signedPosts, WebhookRefused } from '@holdfast/runtime/webhook';
import type { ServiceLog } from '@holdfast/runtime/nest';
import type { DataSource } from 'typeorm';
import { rowsOf } from '../store/database.js';

/** Pauses between tries at one delivery; after the last it is dead, shown, and may be sent again by hand. Milliseconds. */
export const RETRY_AFTER_MS = [1000, 5000, 30_000, 2 * 60_000, 10 * 60_000, 60 * 60_000, 6 * 60 * 60_000] as const;
/** Posts of one webhook under way at once, and of all: so many receivers may hang before anybody else waits as there are times the one in the other. For each instance. */
const OF_ONE = 4;
const AT_ONCE = 100;
/** How long a delivery is its instance's before it is anybody's; longer than a post may take. */
const CLAIM_MS = 30_000;
const LOOK_MS = 1000;
/** The receiver wants no more of it. */
const GONE = 410;

/** Receivers know us by a secret that follows from the gateway's own: none is stored. */
export const secretOf = (key: string, webhook: string): string => `whsec_${createHmac('sha256', key).update(JSON.stringify(['webhook', webhook])).digest('base64')}`;

interface Due {
  readonly id: string;
  readonly webhook: string;
  readonly event: string;
  readonly url: string;
  readonly body: string;
  readonly tries: number;
}

/** What came of a post. */
interface Posted {
  readonly state: 'delivered' | 'dead' | 'pending';
  readonly problem: string | null;
  readonly pauseMs: number | null;
}

/** What a post is to a crash point: the run and type of its event. */
function inPost(body: string): readonly string[] {
  const { type, data } = JSON.parse(body) as { readonly type: string; readonly data: { readonly run: string } };
  return [`${data.run}/${type}`];
}

/** Sends what is due, at least once; a receiver that is down, or hangs, delays nothing but its own. */
export class WebhookSender {
  #cancel: (() => void) | null = null;
  #stopped = false;
  #taking: Promise<void> | null = null;
  #again = false;
  readonly #sending = new Set<Promise<void>>();
  /** Posts under way, by webhook. */
  readonly #of = new Map<string, number>();

  constructor(
    private readonly database: DataSource,
    private readonly key: string,
    private readonly log: ServiceLog,
  ) {}

  start(): void {
    this.look();
  }

  /** Posts under way end, within the time that one may take. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel?.();
    await this.#taking;
    await Promise.all(this.#sending);
  }

  /** Something may be due, or there is room for more. */
  look(): void {
    if (this.#stopped) return;
    this.#again = this.#taking !== null;
    if (this.#again) return;
    this.#cancel?.();
    this.#taking = this.#take()
      .catch((error: unknown) => this.#waits(error))
      .finally(() => {
        this.#taking = null;
        if (this.#again) this.look();
        else if (!this.#stopped) this.#cancel = systemClock.after(LOOK_MS, () => this.look());
      });
  }

  /** Takes what is due as far as there is room, and begins to send it: nothing waits for what another webhook has under way. */
  async #take(): Promise<void> {
    const room = AT_ONCE - this.#sending.size;
    if (room <= 0) return;
    const now = systemClock.now();
    const due = await rowsOf<Due>(
      this.database,
      `with due as materialized (
         select d.id, w.url, coalesce(o.posts, 0) + row_number() over (partition by w.id order by d.next_at, d.id) as place, d.next_at
         from webhook w left join unnest($3::text[], $4::int[]) as o(webhook, posts) on o.webhook = w.id
         cross join lateral (
           select id, next_at from delivery
           where webhook = w.id and state = 'pending' and next_at <= $1
           order by next_at, id limit greatest($5 - coalesce(o.posts, 0), 0) for update skip locked) d
         where w.removed_at is null
         order by place, d.next_at limit $6),
       mine as (
         update delivery set next_at = $1 + $2 from due where delivery.id = due.id
         returning delivery.id, delivery.webhook, delivery.event, delivery.body, delivery.tries, due.url)
       select * from mine`,
      [now, CLAIM_MS, [...this.#of.keys()], [...this.#of.values()], OF_ONE, room],
    );
    for (const delivery of due) this.#send(delivery);
  }

  #send(delivery: Due): void {
    const { webhook } = delivery;
    this.#of.set(webhook, (this.#of.get(webhook) ?? 0) + 1);
    const sending = this.#deliver(delivery)
      .catch((error: unknown) => this.#waits(error))
      .finally(() => {
        const left = (this.#of.get(webhook) ?? 1) - 1;
        if (left === 0) this.#of.delete(webhook);
        else this.#of.set(webhook, left);
        this.#sending.delete(sending);
        this.look();
      });
    this.#sending.add(sending);
  }

  async #deliver(delivery: Due): Promise<void> {
    const { id, webhook, tries } = delivery;
    const { state, problem, pauseMs } = await this.#post(delivery);
    if (state === 'dead') this.log.warn({ webhook, delivery: id, problem }, 'a delivery is given up; it is shown among the dead ones');
    const now = systemClock.now();
    // Its webhook may be gone by now, or another instance have delivered it: then that stands.
    await this.database.query(`update delivery set state = $2, tries = $3, last_problem = $4, next_at = $5, ended_at = $6 where id = $1 and state = 'pending'`, [id, state, tries + 1, problem, pauseMs === null ? null : now + pauseMs, state === 'pending' ? null : now]);
  }

  async #post({ webhook, event, url, body, tries }: Due): Promise<Posted> {
    try {
      crashPoint('gateway.before-post', () => inPost(body));
      await signedPosts(url, secretOf(this.key, webhook))({ id: event, body });
      crashPoint('gateway.after-post', () => inPost(body));
      return { state: 'delivered', problem: null, pauseMs: null };
    } catch (error) {
      const problem = error instanceof WebhookRefused ? error.message : 'it can’t be reached';
      const pauseMs = error instanceof WebhookRefused && error.status === GONE ? undefined : RETRY_AFTER_MS[tries];
      return pauseMs === undefined ? { state: 'dead', problem, pauseMs: null } : { state: 'pending', problem, pauseMs };
    }
  }

  #waits(error: unknown): void {
    this.log.warn({ error: error instanceof Error ? error.message : String(error) }, 'deliveries of webhooks wait');
  }
}
