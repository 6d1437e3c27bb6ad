import { askedUnder, encodeHeaders, otherThan, topics, VALUE_BYTES_MAX, type Asking, type Json, type Message } from '@holdfast/protocol';
import { crashPoint, inHand, type LogWriter } from '@holdfast/runtime';
import type { Principal } from '../domain/access.js';
import { Problem } from '../http/problem.js';
import { askedOf } from '../http/trace.js';
import type { Views } from '../views/views.js';
import type { Answers, Told } from './answers.js';
import type { Queries } from './queries.js';

export interface Ask {
  readonly topic: string;
  readonly run: string;
  readonly principal: Principal;
  /** Names the command: whoever reads it twice takes it once. */
  readonly id: string;
  readonly message: Message;
  readonly answers: (told: Pick<Told, 'type' | 'data'>) => boolean;
  /** How long the answer is waited for, milliseconds. */
  readonly waitMs: number;
  readonly signal: AbortSignal;
  /** The partition, where the key does not say it. */
  readonly lane?: number | undefined;
}

/** What is answered by the event that carries its id. */
export type Once = Omit<Ask, 'answers' | 'message'> & { readonly message: Asking };

export type Answered = { readonly type: string; readonly data: { readonly [member: string]: Json } };

/** How long the read models may lag behind an answer before it is given all the same. Milliseconds. */
const SHOWN_WITHIN_MS = 5000;

/** Puts what people and programs ask for onto the topics, exactly as any other client would, and hears what became of it. */
export class Commands {
  constructor(
    private readonly writer: LogWriter,
    private readonly source: string,
    private readonly now: () => number,
    private readonly answers: Answers,
    private readonly queries: Queries,
    private readonly views: Views,
  ) {}

  /**
   * Publishes, and waits for the event that answers. Null when none came in time: it is written, and
   * will be decided, whether or not anybody waits. What answered is in the read models by then.
   * @throws Problem too-large
   */
  async ask({ topic, run, principal, id, message, answers, waitMs, signal, lane }: Ask): Promise<Answered | null> {
    const value = JSON.stringify(message.data);
    const bytes = Buffer.byteLength(value);
    if (bytes > VALUE_BYTES_MAX) throw new Problem('too-large', `the message would have ${bytes} bytes, of at most ${VALUE_BYTES_MAX}; store large values as artifacts and pass the reference`);
    const waiting = this.answers.wait(run, (told) => told.tenant === principal.tenant && answers(told));
    try {
      const traceparent = askedOf(run);
      const headers = encodeHeaders({ id, type: message.type, source: this.source, subject: run, time: this.now(), tenant: principal.tenant, ...(traceparent === undefined ? {} : { traceparent }) });
      const about = (): readonly string[] => inHand(run, message.type, value);
      crashPoint('gateway.before-publish', about);
      await this.writer.publish([{ topic, ...(lane === undefined ? {} : { lane }), key: run, headers, value }]);
      crashPoint('gateway.after-publish', about);
    } catch (error) {
      waiting.forget();
      throw error;
    }
    const told = await waiting.within(waitMs, signal);
    if (told === null) return null;
    await this.views.passed(told.topic, told.lane, told.offset, SHOWN_WITHIN_MS);
    return { type: told.type, data: told.data };
  }

  /** As `ask`, for what is known by its id: asked again, it gets the answer that it got. @throws Problem idempotency-key-reused */
  async once(ask: Once): Promise<Answered | null> {
    const events = (await this.queries.eventsUnder(ask.run, ask.id)).map(({ type, data }) => ({ type, data: JSON.parse(data) as Answered['data'] }));
    const answers = (told: Answered): boolean => askedUnder(told) === ask.id;
    const answer = events.find(answers) ?? (await this.ask({ ...ask, answers }));
    return answer === null ? null : answering(ask.message, answer);
  }

  /** An operator's command. */
  operate(ask: Omit<Once, 'topic'>): Promise<Answered | null> {
    return this.once({ ...ask, topic: topics.operatorCommands });
  }
}

/** A key is kept for a day, what was decided under it is for ever. @throws Problem idempotency-key-reused */
export function answering(message: Asking, answer: Answered): Answered {
  const other = otherThan(message, answer);
  if (other !== null) throw new Problem('idempotency-key-reused', `this Idempotency-Key named another command (${other}); choose a new one`);
  return answer;
}

export const operatorOf = ({ name, roles }: Principal): { name: string; roles: string[] } => ({ name, roles: [...roles] });
