import { createHmac } from 'node:crypto';
import { systemClock } from '@holdfast/runtime';
import { signedPosts, WebhookRefused } from '@holdfast/runtime/webhook';
import type { ServiceLog } from '@holdfast/runtime/nest';
import type { DataSource } from 'typeorm';
import { rowsOf } from '../store/database.js';

/** Pauses between tries at one delivery; after the last it is dead, shown, and may be sent again by hand. Milliseconds. */
export const RETRY_AFTER_MS = [1000, 5000, 30_000, 2 * 60_000, 10 * 60_000, 60 * 60_000, 6 * 60 * 60_000] as const;
/** Deliveries under way at once, and how long one is another instance's before it is anybody's. */
const AT_ONCE = 10;
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

/** Sends what is due, at least once; a receiver that is down delays nothing but its own. */
export class WebhookSender {
  #cancel: (() => void) | null = null;
  #stopped = false;
  #sending: Promise<void> = Promise.resolve();
  #again = false;

  constructor(
    private readonly database: DataSource,
    private readonly key: string,
    private readonly log: ServiceLog,
  ) {}

  start(): void {
    this.look();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel?.();
    await this.#sending;
  }

  /** Something may be due. */
  look(): void {
    if (this.#stopped) return;
    this.#cancel?.();
    if (this.#again) return;
    this.#again = true;
    this.#sending = this.#sending
      .then(() => {
        this.#again = false;
        return this.#send();
      })
      .catch((error: unknown) => this.log.warn({ error: error instanceof Error ? error.message : String(error) }, 'deliveries of webhooks wait'))
      .finally(() => {
        if (!this.#stopped) this.#cancel = systemClock.after(LOOK_MS, () => this.look());
      });
  }

  async #send(): Promise<void> {
    const now = systemClock.now();
    const due = await rowsOf<Due>(
      this.database,
      `with mine as (
         update delivery set next_at = $1 + $2
         where id in (select id from delivery where state = 'pending' and next_at <= $1 order by next_at limit $3 for update skip locked)
         returning id, webhook, event, body, tries)
       select m.*, w.url from mine m join webhook w on w.id = m.webhook where w.removed_at is null`,
      [now, CLAIM_MS, AT_ONCE],
    );
    await Promise.all(due.map((delivery) => this.#deliver(delivery)));
    if (due.length === AT_ONCE && !this.#stopped) await this.#send();
  }

  async #deliver({ id, webhook, event, url, body, tries }: Due): Promise<void> {
    try {
      await signedPosts(url, secretOf(this.key, webhook))({ id: event, body });
      await this.#note(id, 'delivered', tries + 1, null, null);
    } catch (error) {
      const problem = error instanceof WebhookRefused ? error.message : 'it can’t be reached';
      const pauseMs = error instanceof WebhookRefused && error.status === GONE ? undefined : RETRY_AFTER_MS[tries];
      if (pauseMs === undefined) this.log.warn({ webhook, delivery: id, problem }, 'a delivery is given up; it is shown among the dead ones');
      await this.#note(id, pauseMs === undefined ? 'dead' : 'pending', tries + 1, problem, pauseMs ?? null);
    }
  }

  async #note(id: string, state: 'delivered' | 'dead' | 'pending', tries: number, problem: string | null, pauseMs: number | null): Promise<void> {
    const now = systemClock.now();
    await this.database.query('update delivery set state = $2, tries = $3, last_problem = $4, next_at = $5, ended_at = $6 where id = $1', [id, state, tries, problem, pauseMs === null ? null : now + pauseMs, state === 'pending' ? null : now]);
  }
}
