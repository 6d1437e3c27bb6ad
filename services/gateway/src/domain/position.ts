/**
 * Names of places in the event stream: what `Last-Event-ID` carries. A place says, for each topic
 * and lane, the next offset: so it names the same place in every generation of the read models, on
 * every instance, and after each rebuild. `r3.18_7.2-e3.5` is offset 18 of lane 3 and 2 of lane 7
 * on `run.events`, and offset 5 of lane 3 on `effect.events`.
 */
export type Position = ReadonlyMap<string, number>;

/** Streams that pages and event streams show, by the letter that stands for each. */
export const STREAM_TOPICS = { r: 'run.events', e: 'effect.events', c: 'reconciliation.events', p: 'compensation.events' } as const;
type Letter = keyof typeof STREAM_TOPICS;

export const placeOf = (topic: string, lane: number): string => `${topic}/${lane}`;

/** Written so that it can stand in an HTTP header and in a URL. */
export function formatPosition(position: Position): string {
  const parts = (Object.entries(STREAM_TOPICS) as [Letter, string][]).flatMap(([letter, topic]) => {
    const lanes = [...position].flatMap(([place, next]) => (place.startsWith(`${topic}/`) ? [{ lane: Number(place.slice(topic.length + 1)), next }] : []));
    if (lanes.length === 0) return [];
    return [`${letter}${lanes.sort((a, b) => a.lane - b.lane).map(({ lane, next }) => `${lane}.${next}`).join('_')}`];
  });
  return parts.length === 0 ? '0' : parts.join('-');
}

const PART = /^([recp])((?:\d{1,4}\.\d{1,15})(?:_\d{1,4}\.\d{1,15})*)$/;

/** Null where the text names no place. */
export function parsePosition(text: string): Position | null {
  const position = new Map<string, number>();
  if (text === '0') return position;
  for (const part of text.split('-')) {
    const match = PART.exec(part);
    if (match?.[1] === undefined || match[2] === undefined) return null;
    const topic = STREAM_TOPICS[match[1] as Letter];
    for (const entry of match[2].split('_')) {
      const [lane, next] = entry.split('.');
      position.set(placeOf(topic, Number(lane)), Number(next));
    }
  }
  return position;
}

export interface Placed {
  readonly topic: string;
  readonly lane: number;
  readonly offset: number;
  readonly time: number;
}

/**
 * Puts what several lanes hold into one order: by time, and within a lane as it stands there. Each
 * gets the position behind it, from which the rest follows whatever the order was.
 */
export function inOrder<E extends Placed>(from: Position, events: readonly E[]): { readonly event: E; readonly after: string }[] {
  const lanes = new Map<string, E[]>();
  for (const event of events) {
    const place = placeOf(event.topic, event.lane);
    lanes.set(place, [...(lanes.get(place) ?? []), event]);
  }
  const queues = [...lanes.values()].map((queue) => queue.sort((a, b) => a.offset - b.offset));
  const position = new Map(from);
  const ordered: { event: E; after: string }[] = [];
  for (let left = events.length; left > 0; left -= 1) {
    let first: E[] | null = null;
    for (const queue of queues) if (queue[0] !== undefined && (first?.[0] === undefined || queue[0].time < first[0].time)) first = queue;
    const event = first?.shift();
    if (event === undefined) break;
    position.set(placeOf(event.topic, event.lane), event.offset + 1);
    ordered.push({ event, after: formatPosition(position) });
  }
  return ordered;
}
