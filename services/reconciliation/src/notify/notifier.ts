import { Inject, Injectable, type OnApplicationBootstrap, type OnApplicationShutdown } from '@nestjs/common';
import { topics } from '@holdfast/protocol';
import type { LogRecord } from '@holdfast/runtime';
import { follow } from '@holdfast/runtime/kafka';
import { BROKERS, LOG, type ServiceLog } from '@holdfast/runtime/nest';
import { noticeOf } from './notice.js';
import { readReceiver } from './settings.js';
import { webhook, type Tell } from './webhook.js';

/** Tries at one notice, and the pause before the second, which doubles. Milliseconds. */
const TRIES_MAX = 6;
const FIRST_PAUSE_MS = 500;
const START_AGAIN_MS = 5000;

/**
 * Brings reminders and escalations to people, at least once each: a log line always, a signed
 * webhook where one is set. It follows the service's own topic, so that nothing is told that is
 * not recorded; a receiver that is down delays later notices of that lane, never a decision.
 */
@Injectable()
export class CaseNotifier implements OnApplicationBootstrap, OnApplicationShutdown {
  readonly #brokers: readonly string[];
  readonly #log: ServiceLog;
  readonly #tell: Tell | null;
  #following: { close(): Promise<void> } | null = null;
  #starting: Promise<void> = Promise.resolve();
  #stopped = false;
  #timer: NodeJS.Timeout | null = null;

  constructor(@Inject(BROKERS) brokers: readonly string[], @Inject(LOG) log: ServiceLog) {
    this.#brokers = brokers;
    this.#log = log;
    const receiver = readReceiver(process.env);
    this.#tell = receiver === null ? null : webhook(receiver.url, receiver.secret);
  }

  onApplicationBootstrap(): void {
    this.#starting = this.#start();
  }

  async onApplicationShutdown(): Promise<void> {
    this.#stopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    // A member that is still joining can't leave: the group would wait for it until its session is over.
    await this.#starting;
    await this.#following?.close();
  }

  async #start(): Promise<void> {
    try {
      this.#following = await follow({
        brokers: this.#brokers,
        topic: topics.reconciliationEvents,
        groupId: 'holdfast.reconciliation.notices',
        from: 'beginning',
        onRecord: (record) => this.#record(record),
        onCrash: (error) => this.#again(error),
      });
    } catch (error) {
      this.#again(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #again(error: Error): void {
    if (this.#stopped) return;
    this.#log.warn({ error: error.message }, 'notices of cases wait: their reader stopped, and is started again');
    const before = this.#following;
    this.#following = null;
    void before?.close().catch(() => undefined);
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (this.#starting = this.#start()), START_AGAIN_MS);
  }

  async #record(record: LogRecord): Promise<void> {
    const notice = noticeOf(record);
    if (notice === null) return;
    this.#log.warn({ notice: notice.type, ...notice.data }, notice.data.message);
    if (this.#tell === null) return;
    for (let tried = 1; !this.#stopped; tried += 1) {
      try {
        return await this.#tell(notice);
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        if (tried >= TRIES_MAX) return this.#log.error({ notice: notice.id, case: notice.data.case, error: message }, `the webhook did not take a notice in ${TRIES_MAX} tries: it is given up, and stands in the log only`);
        await new Promise((resolve) => setTimeout(resolve, FIRST_PAUSE_MS * 2 ** (tried - 1)));
      }
    }
  }
}
