import { follow, type LiveEvent } from '../live.js';

/** What came on a topic in the last `withinMs` milliseconds. */
export async function recent(brokers: readonly string[], topic: string, withinMs: number): Promise<LiveEvent[]> {
  const events: LiveEvent[] = [];
  const tails = await follow({ brokers, topics: [topic], from: { time: Date.now() - withinMs }, filter: {}, onEvent: (event) => events.push(event) });
  try {
    await Promise.all(tails.map(({ caughtUp }) => caughtUp));
  } finally {
    await Promise.all(tails.map((each) => each.close()));
  }
  return events;
}
