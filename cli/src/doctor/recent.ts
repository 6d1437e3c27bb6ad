import { follow, type LiveEvent } from '../live.js';

/** What came on a topic in the last `withinMs` milliseconds. */
export async function recent(brokers: readonly string[], topic: string, withinMs: number): Promise<LiveEvent[]> {
  const events: LiveEvent[] = [];
  const reader = await follow({ brokers, topics: [topic], from: { time: Date.now() - withinMs }, filter: {}, onEvent: (event) => events.push(event) });
  try {
    await reader.caughtUp;
  } finally {
    await reader.close();
  }
  return events;
}
