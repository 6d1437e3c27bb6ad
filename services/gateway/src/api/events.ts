import { Controller, Inject } from '@nestjs/common';
import { laneOf } from '@holdfast/runtime/kafka';
import { z } from 'zod';
import { parsePosition, type Position } from '../domain/position.js';
import { endpoint, ok, Serves, type Answer, type Call, type CallOf } from '../http/endpoint.js';
import { Problem } from '../http/problem.js';
import { Views } from '../views/views.js';
import { eventOut, Queries, type EventRow } from './queries.js';
import { EventPlace, Limit, page, RunEventOut, RunParams } from './shapes.js';

const NOTE = 'With `Accept: text/event-stream` it is a stream that goes on with `Last-Event-ID`; ids stay good over restarts, instances and rebuilds.';

export const listRunEvents = endpoint({
  ...{ id: 'listRunEvents', method: 'get', path: '/v1/runs/{run}/events', tag: 'events', may: 'viewer', summary: 'Events of a run: its own, its effects’ and its cases’', description: NOTE },
  params: RunParams,
  query: z.object({ after: EventPlace.optional(), limit: Limit }),
  answers: { 200: { description: 'A page of events, or a stream of them.', schema: page(RunEventOut), events: true } },
});

export const streamEvents = endpoint({
  ...{ id: 'streamEvents', method: 'get', path: '/v1/events', tag: 'events', may: 'viewer', summary: 'Events of all runs', description: `${NOTE} A stream without a place begins now, a page at the beginning.` },
  query: z.object({ after: EventPlace.optional(), limit: Limit }),
  answers: { 200: { description: 'A page of events, or a stream of them.', schema: page(RunEventOut), events: true } },
});

type Read = (from: Position, limit: number) => Promise<{ event: EventRow; after: string }[]>;

const STREAM_PAGE = 200;
/** Another instance may have taken events in: then nobody tells this one. Milliseconds. */
const LOOK_MS = 500;

@Controller()
export class EventsController {
  constructor(
    @Inject(Queries) private readonly queries: Queries,
    @Inject(Views) private readonly views: Views,
    @Inject('lanes') private readonly lanes: number,
  ) {}

  @Serves(listRunEvents)
  async ofRun(call: CallOf<typeof listRunEvents>): Promise<Answer> {
    const { id } = await this.queries.runOr404(call.principal.tenant, call.params.run);
    const lane = laneOf(id, this.lanes);
    return this.#answer(call, (from, limit) => this.queries.eventsOfRun(id, lane, from, limit), () => Promise.resolve(new Map()));
  }

  @Serves(streamEvents)
  async ofTenant(call: CallOf<typeof streamEvents>): Promise<Answer> {
    return this.#answer(call, (from, limit) => this.queries.eventsOfTenant(call.principal.tenant, this.lanes, from, limit), () => this.queries.here());
  }

  async #answer({ query, header, signal }: Call<unknown, { after?: Position | undefined; limit: number }>, read: Read, start: () => Promise<Position>): Promise<Answer> {
    if (!/\btext\/event-stream\b/i.test(header('accept') ?? '')) {
      const found = await read(query.after ?? new Map(), query.limit + 1);
      const shown = found.slice(0, query.limit);
      return ok({ items: shown.map(eventOut), next: found.length > query.limit ? (shown.at(-1)?.after ?? null) : null });
    }
    const last = header('last-event-id');
    const resumed = last === undefined || last === '' ? query.after : parsePosition(last);
    if (resumed === null) throw new Problem('invalid-request', 'Last-Event-ID: this is the id of no event');
    let from = resumed ?? (await start());
    return {
      stream: async (send) => {
        while (!signal.aborted) {
          const found = await read(from, STREAM_PAGE);
          for (const each of found) {
            const out = eventOut(each);
            await send({ id: out.id, type: out.type, data: out });
            if (signal.aborted) return;
          }
          const behind = found.at(-1)?.after;
          if (behind !== undefined) from = parsePosition(behind) ?? from;
          if (found.length < STREAM_PAGE) await this.views.news(LOOK_MS, signal);
        }
      },
    };
  }
}
