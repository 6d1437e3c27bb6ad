import type { LoopObserver } from '../loop/observer.js';

/** Several observers as one; the first that names spans names them for all. Undefined where nobody looks. */
export function together(observers: readonly LoopObserver[]): LoopObserver | undefined {
  const [first] = observers;
  if (first === undefined || observers.length === 1) return first;
  const naming = observers.find(({ traceparent }) => traceparent !== undefined);
  return {
    onTurn: (turn) => {
      for (const observer of observers) observer.onTurn(turn);
    },
    ...(naming?.traceparent === undefined ? {} : { traceparent: (record, stream) => naming.traceparent?.(record, stream) ?? null }),
  };
}
