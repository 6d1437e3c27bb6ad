import { isRefusal } from '@holdfast/runtime/kafka';
import { systemClock } from '@holdfast/runtime/system';

export interface Kept<Reader> {
  /** Opens a reader; `onError`: it could not begin. One that has begun comes back by itself. */
  open(onError: (error: unknown) => void): Promise<Reader>;
  close(reader: Reader): Promise<void>;
  /** Asked before another try. */
  wanted(): boolean;
  /** A broker has refused for good; nothing more is tried. */
  fail(error: unknown): void;
}

const RETRY_FIRST_MS = 200;
const RETRY_MOST_MS = 5000;

/** Opens a reader, again and again while brokers are away: an outage is waited out. Returns what ends that, and closes it. */
export function keepOpen<Reader>({ open, close, wanted, fail }: Kept<Reader>): () => void {
  let current: Promise<Reader> | null = null;
  let stopped = false;
  let retryMs = RETRY_FIRST_MS;
  let cancelRetry: () => void = () => undefined;
  const drop = (): void => {
    // One that never opened needs no closing.
    void current?.then(close).catch(() => undefined);
    current = null;
  };
  const begin = (): void => {
    const troubled = (error: unknown): void => {
      if (stopped || current !== opening) return;
      drop();
      if (isRefusal(error)) return fail(error);
      cancelRetry = systemClock.after(retryMs, () => wanted() && begin());
      retryMs = Math.min(retryMs * 2, RETRY_MOST_MS);
    };
    const opening = open(troubled);
    current = opening;
    opening.catch(troubled);
  };
  begin();
  return () => {
    stopped = true;
    cancelRetry();
    drop();
  };
}
