import type { MessageOf, RunCompensated } from '@holdfast/protocol';
import { OutcomeTimeout } from '../errors.js';
import type { RunEventRecord } from './log.js';
import type { RunStream } from './stream.js';

/** How what a run did stands: effect by effect what answered it, who allowed that, and what remains. */
export type RunStanding = Readonly<MessageOf<typeof RunCompensated>['data']>;

/** What the latest plan of a run came to, once nothing of it moves by itself any more. @throws OutcomeTimeout */
export async function standingOf(run: string, timeoutMs: number | undefined, open: (onEvent: (record: RunEventRecord) => void, onError: (error: Error) => void) => Promise<RunStream>, close: (stream: RunStream) => Promise<void>): Promise<RunStanding> {
  let timer: NodeJS.Timeout | undefined;
  let opening: Promise<RunStream> | undefined;
  try {
    return await new Promise<RunStanding>((resolve, reject) => {
      let latest: RunStanding | null = null;
      let upToDate = false;
      const say = (): void => {
        if (upToDate && latest !== null) resolve(latest);
      };
      if (timeoutMs !== undefined) timer = setTimeout(() => reject(new OutcomeTimeout(`no plan of compensation of run ${run} is concluded after ${timeoutMs} ms`)), timeoutMs);
      opening = open(({ event }) => {
        if (event.type === 'RunCompensating') latest = null;
        if (event.type === 'RunCompensated') latest = event.data;
        say();
      }, reject);
      opening
        .then((stream) => stream.caughtUp)
        .then(() => {
          upToDate = true;
          say();
        })
        .catch(reject);
    });
  } finally {
    clearTimeout(timer);
    void opening?.then(close, () => undefined);
  }
}
