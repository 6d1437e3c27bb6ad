import { useQueryClient, type QueryKey } from '@tanstack/react-query';
import { createEventSource } from 'eventsource-client';
import { createContext, useContext, useEffect, useMemo, useRef, useState, type ReactNode } from 'react';
import type { RunEvent } from './client.js';
import { readKey } from './session.js';

/** `lost`: cut off, and being tried again. Nothing is missed by it: the stream goes on where it broke off. */
export type Connection = 'connecting' | 'live' | 'lost';

type Listener = (events: readonly RunEvent[]) => void;

interface Live {
  readonly connection: Connection;
  /** How often the stream was begun: what was read before may be older than its beginning. */
  readonly begun: number;
  subscribe(listener: Listener): () => void;
}

const LiveContext = createContext<Live>({ connection: 'connecting', begun: 0, subscribe: () => () => undefined });

/** Events are handed on in batches, so that a busy tenant doesn't draw each page a thousand times a second. Milliseconds. */
const BATCH_MS = 250;

/** One stream of the tenant's events for all pages: `EventSource` can't send a key, so it is read with `fetch`. */
export function LiveProvider({ children }: { readonly children: ReactNode }) {
  const listeners = useRef(new Set<Listener>());
  const [connection, setConnection] = useState<Connection>('connecting');
  const [begun, setBegun] = useState(0);

  useEffect(() => {
    let batch: RunEvent[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isFirst = true;
    const flush = (): void => {
      timer = undefined;
      const events = batch;
      batch = [];
      for (const listener of listeners.current) listener(events);
    };
    const source = createEventSource({
      url: `${location.origin}/v1/events`,
      headers: { authorization: `Bearer ${readKey() ?? ''}`, accept: 'text/event-stream' },
      onConnect: () => {
        setConnection('live');
        // Without an event so far there is no place to go on from: then it begins at what is now.
        if (isFirst || source.lastEventId === undefined) setBegun((times) => times + 1);
        isFirst = false;
      },
      onDisconnect: () => setConnection('lost'),
      onScheduleReconnect: () => setConnection('lost'),
      onMessage: ({ data }) => {
        batch.push(JSON.parse(data) as RunEvent);
        timer ??= setTimeout(flush, BATCH_MS);
      },
    });
    return () => {
      clearTimeout(timer);
      source.close();
    };
  }, []);

  const live = useMemo<Live>(
    () => ({
      connection,
      begun,
      subscribe: (listener) => {
        listeners.current.add(listener);
        return () => void listeners.current.delete(listener);
      },
    }),
    [connection, begun],
  );
  return <LiveContext value={live}>{children}</LiveContext>;
}

export const useConnection = (): Connection => useContext(LiveContext).connection;

/** Calls back with what has happened since, and with nothing when the stream began anew: then all may have changed. */
export function useLive(listener: (events: readonly RunEvent[] | null) => void): void {
  const { subscribe, begun } = useContext(LiveContext);
  const latest = useRef(listener);
  useEffect(() => {
    latest.current = listener;
  });
  useEffect(() => subscribe((events) => latest.current(events)), [subscribe]);
  useEffect(() => {
    if (begun > 0) latest.current(null);
  }, [begun]);
}

/**
 * Asks anew for what queries show when an event matters to them. One look at a time: what comes while it
 * is under way is looked at afterwards, so that a busy run can't keep a page from ever being drawn.
 */
export function useRefresh(queryKey: QueryKey, matters: (event: RunEvent) => boolean): void {
  const queries = useQueryClient();
  const looking = useRef({ busy: false, again: false });
  useLive((events) => {
    if (events !== null && !events.some(matters)) return;
    const state = looking.current;
    state.again = true;
    if (state.busy) return;
    state.busy = true;
    void (async () => {
      while (state.again) {
        state.again = false;
        await queries.invalidateQueries({ queryKey }, { cancelRefetch: false });
      }
      state.busy = false;
    })();
  });
}
