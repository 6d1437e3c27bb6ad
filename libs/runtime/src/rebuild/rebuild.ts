import { decodeHeaders, parseJson, serviceSource, topics, type Message } from '@holdfast/protocol';
import { Draft, Missing as NotFetched, type DraftContext } from '../loop/draft.js';
import type { Inbound, RebuildRules, Service, SharedWord } from '../loop/service.js';
import { Lane } from '../loop/lane.js';
import { foldRows } from '../loop/streams.js';
import type { Clock, LogRecord, Random } from '../ports.js';
import type { AgendaEntry, JournalRow, Progress, SharedWrite, Store } from '../store/types.js';
import { answeredByLetter, foldOwnTopic, noteAnswer, ownSource, type FoldedLane } from './fold-lanes.js';
import { placeInputs, type Missing } from './inputs.js';
import { RebuildProblem, type RebuildLog, type RebuildStore } from './ports.js';

/** What a row that spans lanes has so far; its data only where more may add to it. */
type Word = { readonly rank: number; readonly data: string | null };

const ROWS_PER_READ = 1000;
const STREAMS_PER_READ = 500;

export interface RebuildOptions<State, Event extends Message> {
  readonly service: Service<State, Event>;
  readonly store: RebuildStore & Pick<Store, 'append' | 'incarnation'>;
  readonly log: RebuildLog;
  readonly clock: Clock;
  readonly random: Random;
  readonly lanes: number;
  /** Goes on where messages of an input topic are gone that nobody had decided on; they are reported. */
  readonly skipMissing: boolean;
  readonly onProgress: (what: string) => void;
  /** Ends the rebuild between two writes; it may be begun again at any time. */
  readonly signal?: AbortSignal | undefined;
}

export interface RebuildReport {
  readonly service: string;
  readonly incarnation: string;
  /** Events that the journal did not hold, and those that it held already. */
  readonly added: number;
  readonly known: number;
  readonly streams: number;
  readonly open: number;
  /** Records on the service's own topic that no service wrote: left out. */
  readonly foreign: number;
  /** Messages that this service had sent and whose decision was on no topic: recorded from themselves. */
  readonly recovered: number;
  /** Events that the topic had lost and the journal still held: published again. */
  readonly republished: number;
  readonly missing: readonly Missing[];
}

/**
 * Makes a service's journal from the topics: for a database that is new, or older than what the
 * service has published. No instance of the service may run. Every step may be repeated, so it can
 * be ended at any point and begun again.
 * @throws RebuildProblem where going on would be guessing; the message says what to do
 */
export async function rebuildJournal<State, Event extends Message>(options: RebuildOptions<State, Event>): Promise<RebuildReport> {
  return new Rebuild(options).run();
}

class Rebuild<State, Event extends Message> {
  readonly #options: RebuildOptions<State, Event>;
  readonly #rules: RebuildRules<State, Event>;
  #progress = new Map<number, Progress>();
  #folded = new Map<number, FoldedLane>();
  /** Progress of lanes on which something was recorded since the fold. */
  readonly #moved = new Map<number, Progress>();
  #republished = 0;
  #recovered = 0;
  #streams = 0;
  #open: { readonly lane: number; readonly stream: string }[] = [];

  constructor(options: RebuildOptions<State, Event>) {
    this.#options = options;
    this.#rules = options.service.rebuild ?? {};
  }

  async run(): Promise<RebuildReport> {
    const { service, store, random } = this.#options;
    const begun = await store.begin(Array.from({ length: this.#options.lanes }, (_, lane) => lane));
    this.#progress = new Map(begun.map((progress) => [progress.lane, progress]));
    const source = serviceSource(service.name, await store.incarnation());
    await this.#publishRest(source);
    await this.#fold();
    await this.#publishLost(source);
    await this.#readLetters();
    await this.#readSent();
    await this.#viewStreams();
    const missing = await this.#position();
    await this.#reopen();
    const incarnation = random.uuid();
    await store.finish(incarnation);
    const folded = [...this.#folded.values()];
    const sum = (of: (lane: FoldedLane) => number): number => folded.reduce((total, lane) => total + of(lane), 0);
    return {
      service: service.name,
      incarnation,
      added: sum(({ added }) => added),
      known: sum(({ known }) => known),
      foreign: sum(({ foreign }) => foreign),
      streams: this.#streams,
      open: this.#open.length,
      recovered: this.#recovered,
      republished: this.#republished,
      missing,
    };
  }

  /** What the database had committed and perhaps not published goes out under its old name, by which readers know what they have seen. */
  async #publishRest(source: string): Promise<void> {
    const { store, log } = this.#options;
    for (const { lane, published } of this.#progress.values()) {
      let after = published;
      for (;;) {
        this.#checkStop();
        const rows = await store.rowsAfter(lane, after, ROWS_PER_READ);
        const last = rows.at(-1);
        if (last === undefined) break;
        await log.publish(rows, source);
        await store.published(lane, last.seq);
        after = last.seq;
      }
    }
  }

  async #fold(): Promise<void> {
    const { service, store, log } = this.#options;
    let read = 0;
    this.#say(`reading ${service.ownTopic} …`);
    this.#folded = await foldOwnTopic(service, store, log, new Map([...this.#progress].map(([lane, { nextSeq }]) => [lane, nextSeq])), (count) => {
      this.#checkStop();
      read += count;
      this.#say(`${service.ownTopic}: ${read} events read`);
    });
  }

  /** The topic lost what the journal still holds. */
  async #publishLost(source: string): Promise<void> {
    const { service, store, log } = this.#options;
    for (const { ahead } of this.#folded.values()) {
      if (ahead.length === 0) continue;
      const versions = new Map(ahead.map(({ stream, version }) => [stream, version]));
      const streams = await store.loadStreams(service.ownTopic, [...versions.keys()]);
      const rows = [...streams.values()].flat().filter(({ stream, version }) => (version ?? 0) > (versions.get(stream) ?? 0));
      await log.publish(rows.sort((a, b) => a.seq - b.seq), source);
      this.#republished += rows.length;
    }
  }

  async #readLetters(): Promise<void> {
    const { service, log } = this.#options;
    const own = ownSource(service.name);
    this.#say(`reading ${topics.deadLetters} …`);
    await this.#read(topics.deadLetters, log, (record, folded) => {
      const envelope = decodeHeaders(record.headers, record.key, record.time);
      if (envelope?.seq === undefined || !envelope.source.startsWith(own)) return;
      folded.topSeq = Math.max(folded.topSeq, envelope.seq);
      const parsed = parseJson(record.value ?? '');
      const answered = parsed.ok ? answeredByLetter(parsed.value) : null;
      if (answered !== null && service.inbound.some(({ name, writtenBy }) => name === answered.topic && writtenBy === 'outsider')) noteAnswer(folded, answered);
    });
  }

  async #read(topic: string, log: RebuildLog, each: (record: LogRecord, folded: FoldedLane) => void): Promise<void> {
    await log.read(topic, (records) => {
      this.#checkStop();
      for (const record of records) {
        const folded = this.#folded.get(record.lane);
        if (folded !== undefined) each(record, folded);
      }
      return Promise.resolve();
    });
  }

  /** Agenda and rows that span lanes are views of the streams: made anew from all of them. */
  async #viewStreams(): Promise<void> {
    const { service, store } = this.#options;
    await store.clearViews();
    this.#open = [];
    this.#streams = 0;
    const words = new Map<string, Word>();
    let after = '';
    for (;;) {
      this.#checkStop();
      const names = await store.streamsAfter(service.ownTopic, after, STREAMS_PER_READ);
      const last = names.at(-1);
      if (last === undefined) return;
      const agenda: (AgendaEntry & { lane: number })[] = [];
      const shared = new Map<string, SharedWrite>();
      for (const [stream, rows] of await store.loadStreams(service.ownTopic, names)) {
        this.#view(stream, rows, agenda, shared, words);
      }
      await store.addViews(agenda, [...shared.values()]);
      this.#streams += names.length;
      this.#say(`${this.#streams} streams folded`);
      after = last;
    }
  }

  #view(stream: string, rows: readonly JournalRow[], agenda: (AgendaEntry & { lane: number })[], shared: Map<string, SharedWrite>, words: Map<string, Word>): void {
    const { service, clock } = this.#options;
    const lane = rows[0]?.lane;
    if (lane === undefined) return;
    const { added, shared: has } = this.#rules;
    const own: SharedWord[] = [];
    const { state } = foldRows(service, rows, added === undefined ? undefined : (before, event, after, at) => own.push(...added(before, event, after, at, clock.now())));
    const entry = service.agenda(state, stream);
    if (entry.open) {
      // A look that was asked for besides (`wake`) went with the database: everything that is due some time is looked at once.
      agenda.push({ stream, lane, ...entry, dueAt: entry.dueAt === null ? null : Math.min(entry.dueAt, clock.now()) });
      this.#open.push({ stream, lane });
    }
    for (const word of [...own, ...(has?.(stream, state) ?? [])]) {
      const { key, rank, join } = word;
      const before = words.get(key);
      if (before !== undefined && (rank < before.rank || (rank === before.rank && join === undefined))) continue;
      const data = join !== undefined && before?.rank === rank && before.data !== null ? join(before.data) : word.data;
      words.set(key, { rank, data: join === undefined ? null : data });
      shared.set(key, { key, data });
    }
  }

  /** What was sent and is on no stream: its produce was torn, and the database that knew of it is gone. */
  async #readSent(): Promise<void> {
    const { service, log } = this.#options;
    const routes = this.#rules.sent ?? [];
    const own = ownSource(service.name);
    for (const topic of await log.topics()) {
      const mine = routes.filter((route) => route.topic(topic));
      if (mine.length === 0) continue;
      this.#say(`reading ${topic} …`);
      await log.read(topic, async (records) => {
        this.#checkStop();
        const byLane = new Map<number, Inbound[]>();
        for (const record of records) {
          const envelope = decodeHeaders(record.headers, record.key, record.time);
          const route = mine.find(({ message }) => message.type === envelope?.type);
          const folded = this.#folded.get(record.lane);
          if (envelope?.seq === undefined || folded === undefined || !envelope.source.startsWith(own)) continue;
          folded.topSeq = Math.max(folded.topSeq, envelope.seq);
          const data = route?.message.schema.safeParse(JSON.parse(record.value ?? 'null'));
          if (data?.success === true) byLane.set(record.lane, [...(byLane.get(record.lane) ?? []), { envelope, record, data: data.data }]);
        }
        for (const [lane, inbounds] of byLane) {
          this.#recovered += await this.#record(lane, inbounds.map(({ envelope }) => envelope.subject), (draft) => {
            for (const inbound of inbounds) mine.find(({ message }) => message.type === inbound.envelope.type)?.handle(inbound, draft);
          });
        }
      });
    }
  }

  /** Where each lane reads on, and with which numbers it writes. */
  async #position(): Promise<Missing[]> {
    const { service, store, log, skipMissing } = this.#options;
    const placed = await placeInputs(service, log, this.#progress, this.#folded);
    if (placed.missing.length > 0 && !skipMissing) {
      const places = placed.missing.map(({ topic, lane, from, to }) => `${topic}/${lane} offsets ${from} to ${to - 1}`);
      throw new RebuildProblem(
        `messages are gone that ${service.name} had not decided on: ${places.join(', ')}. Restore the topic, or run \`holdfast rebuild ${service.name} --skip-missing\` to go on without them: whoever sent them must send them again`,
      );
    }
    const positions = [...placed.lanes.values()].map((place): Progress => {
      const progress = this.#progressOf(place.lane);
      // Numbers given out in an earlier life stay below all of this one: readers compare them.
      const nextSeq = Math.max(progress.nextSeq, (this.#folded.get(place.lane)?.topSeq ?? 0) + 1);
      return { ...progress, ...place, nextSeq, published: this.#moved.has(place.lane) ? progress.published : nextSeq - 1 };
    });
    await store.setPositions(positions);
    for (const progress of positions) this.#moved.set(progress.lane, progress);
    return placed.missing;
  }

  async #reopen(): Promise<void> {
    const { reopen } = this.#rules;
    if (reopen === undefined) return;
    const byLane = new Map<number, string[]>();
    for (const { lane, stream } of this.#open) byLane.set(lane, [...(byLane.get(lane) ?? []), stream]);
    for (const [lane, streams] of byLane) {
      for (let i = 0; i < streams.length; i += STREAMS_PER_READ) {
        this.#checkStop();
        const some = streams.slice(i, i + STREAMS_PER_READ);
        await this.#record(lane, some, (draft) => {
          for (const stream of some) reopen(stream, draft);
        });
      }
    }
  }

  /** Decides something on a lane and writes it, as the loop does; returns how many rows it came to. */
  async #record(number: number, streams: readonly string[], decide: (draft: Draft<State, Event>) => void): Promise<number> {
    const { service, store, clock, random } = this.#options;
    const lane = new Lane<State>(this.#progressOf(number), new Map());
    const rows = await store.loadStreams(service.ownTopic, [...new Set(streams)]);
    for (const stream of streams) lane.keep(stream, foldRows(service, rows.get(stream) ?? []));
    const context: DraftContext<State, Event> = { service, random, now: clock.now(), locked: new Map(), observer: undefined };
    let draft = new Draft<State, Event>(lane, context);
    for (;;) {
      try {
        decide(draft);
        break;
      } catch (error) {
        // It asks for another stream of its lane.
        if (!(error instanceof NotFetched) || error.what !== 'stream') throw error;
        lane.keep(error.id, foldRows(service, (await store.loadStreams(service.ownTopic, [error.id])).get(error.id) ?? []));
        draft = new Draft<State, Event>(lane, context);
      }
    }
    const write = draft.finish(new Set());
    if (write.rows.length === 0) return 0;
    const held = await store.append([write]);
    if (!held.has(number)) throw new RebuildProblem(`lane ${number} was taken by somebody else meanwhile: stop every instance of ${service.name}, and every other rebuild of it, then begin again`);
    await store.addViews([], write.shared);
    this.#moved.set(number, write.progress);
    return write.rows.length;
  }

  #progressOf(lane: number): Progress {
    const moved = this.#moved.get(lane);
    if (moved !== undefined) return moved;
    const progress = this.#progress.get(lane);
    const folded = this.#folded.get(lane);
    if (progress === undefined || folded === undefined) throw new Error(`lane ${lane} was not folded`);
    return { ...progress, nextSeq: folded.nextSeq, published: folded.nextSeq - 1, last: {} };
  }

  #say(what: string): void {
    this.#options.onProgress(what);
  }

  #checkStop(): void {
    if (this.#options.signal?.aborted === true) throw new RebuildProblem(`stopped; nothing is lost: run \`holdfast rebuild ${this.#options.service.name}\` again, no instance starts before`);
  }
}
