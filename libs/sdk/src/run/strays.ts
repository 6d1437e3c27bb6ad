import { causesOf } from '@holdfast/kernel';

/** Errors handed to authors' code, and whom to tell when the code lets one go unhandled. */
const owners = new WeakMap<Error, (error: Error) => void>();

export function ownStray(error: Error, tell: (error: Error) => void): void {
  owners.set(error, tell);
}

/**
 * Keeps one run's stray rejection (a helper that nobody awaited) from ending the process and all
 * other runs in it: the run it belongs to is told and fails at its end, naming the call. Rejections
 * that come from no run end the process as they always do. Returns what takes the guard away.
 */
export function guardStrayRejections(on: NodeJS.Process = process): () => void {
  const guard = (reason: unknown): void => {
    for (const error of causesOf(reason)) {
      const tell = owners.get(error);
      if (tell !== undefined) return tell(error);
    }
    throw reason;
  };
  on.on('unhandledRejection', guard);
  return () => {
    on.off('unhandledRejection', guard);
  };
}
