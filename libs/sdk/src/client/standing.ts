import type { MessageOf, RunCompensated } from '@holdfast/protocol';
import { systemClock } from '@holdfast/runtime/system';
import { OutcomeTimeout } from '../errors.js';
import { keepOpen } from './keep-open.js';
import type { RunEventRecord } from './log.js';
import type { RunStream } from './stream.js';

/** How what a run did stands: effect by effect what answered it, who allowed that, and what remains. */
export type RunStanding = Readonly<MessageOf<typeof RunCompensated>['data']>;

/** @internal */
export interface StandingSource {
  open(onEvent: (record: RunEventRecord) => void, onError: (error: unknown) => void): Promise<RunStream>;
  close(stream: RunStream): Promise<void>;
  wanted(): boolean;
}

/** What the latest plan of a run came to, once nothing of it moves by itself any more. @throws OutcomeTimeout @internal */
export async function standingOf(run: string, timeoutMs: number | undefined, { open, close, wanted }: StandingSource): Promise<RunStanding> {
  let cancelTimeout: () => void = () => undefined;
  let stop: () => void = () => undefined;
  try {
    return await new Promise<RunStanding>((resolve, reject) => {
      let latest: RunStanding | null = null;
      let upToDate = false;
      const say = (): void => {
        if (upToDate && latest !== null) resolve(latest);
      };
      if (timeoutMs !== undefined) cancelTimeout = systemClock.after(timeoutMs, () => reject(new OutcomeTimeout(`no plan of compensation of run ${run} is concluded after ${timeoutMs} ms`)));
      const tell = ({ event }: RunEventRecord): void => {
        if (event.type === 'RunCompensating') latest = null;
        if (event.type === 'RunCompensated') latest = event.data;
        say();
      };
      stop = keepOpen({
        open: async (onError) => {
          const stream = await open(tell, onError);
          // Where it could not begin, `onError` says so.
          stream.caughtUp.then(() => {
            upToDate = true;
            say();
          }, () => undefined);
          return stream;
        },
        close,
        wanted,
        fail: reject,
      });
    });
  } finally {
    cancelTimeout();
    stop();
  }
}
