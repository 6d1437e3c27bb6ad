import { isA } from '@holdfast/kernel';
import type { ArtifactRef } from '@holdfast/protocol';
import { messageOf, ResultUnreadable } from '../errors.js';
import { halted, type Core } from './core.js';
import type { Entry, Settlement } from './entry.js';

const asItIs = (value: unknown): Settlement => ({ ok: true, value });

const RETRY_FIRST_MS = 500;
const RETRY_MOST_MS = 30_000;

/**
 * Fetches the value that an entry is to be answered with. A store that can't give it holds the run
 * up and says so: what is recorded as a success can't become a failure because a disk is away.
 */
export function load(core: Core, entry: Entry, ref: ArtifactRef, receive: (value: unknown) => Settlement = asItIs, tries = 1): void {
  const { completions } = core;
  completions.loading(1);
  core.store
    .load(ref, entry.step)
    .then(
      (value) => completions.settle(entry, receive(value)),
      (error: unknown) => {
        if (halted(core) || entry.settlement !== null) return;
        if (isA(error, ResultUnreadable)) return completions.settle(entry, { ok: false, error });
        const delayMs = Math.min(RETRY_MOST_MS, RETRY_FIRST_MS * 2 ** (tries - 1));
        core.trouble(`${entry.label}: its result can't be fetched, next try in ${delayMs} ms: ${messageOf(error)}`);
        completions.loading(1);
        entry.cancel = core.port.after(delayMs, () => {
          completions.loading(-1);
          if (!halted(core)) load(core, entry, ref, receive, tries + 1);
        });
      },
    )
    .finally(() => completions.loading(-1));
}
