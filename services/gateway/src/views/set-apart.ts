import { DEFAULT_TENANT, DeadLetter, decodeHeaders, encodeHeaders, Tenant, topics } from '@holdfast/protocol';
import { systemClock, type LogRecord, type LogWriter } from '@holdfast/runtime';
import type { ServiceLog } from '@holdfast/runtime/nest';

const KEY_MAX = 500;
const EXCERPT_MAX = 1000;

/** Records that the database never takes: shown among the dead letters, counted, and passed over. */
export class SetApart {
  #count = 0;

  constructor(
    private readonly writer: LogWriter,
    private readonly source: string,
    private readonly log: ServiceLog,
  ) {}

  /** How often since this instance began: once for each reader, and each rebuild, that meets one. */
  get count(): number {
    return this.#count;
  }

  /** `by`: the reader that can't take it in. */
  async note(record: LogRecord, by: string, error: unknown): Promise<void> {
    const { topic, lane, offset, key, value } = record;
    const message = `what is made of it can’t be stored by ${by}, and never could as it is: ${error instanceof Error ? error.message : String(error)}`.slice(0, 4000);
    const envelope = decodeHeaders(record.headers, record.key, record.time);
    // What can't be stored of a dead letter has no place among them either.
    if (topic !== topics.deadLetters) {
      const letter = DeadLetter({ topic, partition: lane, offset, key: key?.slice(0, KEY_MAX) ?? null, type: envelope?.type.slice(0, KEY_MAX) ?? null, reason: 'not_storable', message, excerpt: value?.slice(0, EXCERPT_MAX) ?? '' });
      const subject = key?.slice(0, KEY_MAX) ?? '';
      const headers = encodeHeaders({ id: `${this.source}/${topic}/${lane}/${offset}`, type: letter.type, source: this.source, subject, time: systemClock.now(), tenant: Tenant.safeParse(envelope?.tenant).data ?? DEFAULT_TENANT });
      await this.writer.publish([{ topic: topics.deadLetters, key: subject, headers, value: JSON.stringify(letter.data) }]);
    }
    this.#count += 1;
    this.log.error({ reader: by, topic, lane, offset, key: key?.slice(0, KEY_MAX), type: envelope?.type, error: message }, 'a record can’t be stored and is passed over: it is in no page and posted to no webhook; once its cause is mended, `holdfast gateway rebuild` takes it into the pages');
  }
}
