/*
 * Anything may be thrown at us, and not everything answers when it is looked at: a revoked
 * proxy throws at each question, `instanceof` included.
 */

type Kind<T> = abstract new (...args: never[]) => T;

/** `instanceof` that never throws. */
export function isA<T>(thrown: unknown, kind: Kind<T>): thrown is T {
  try {
    return thrown instanceof kind;
  } catch {
    return false;
  }
}

/** No chain of causes that says anything is longer. */
const CAUSES_MAX = 100;

/** An error and what caused it, each once: causes may lead back to where they began, or on without end. Never throws. */
export function causesOf(thrown: unknown): readonly Error[] {
  const errors = new Set<Error>();
  for (let error = thrown; isA(error, Error) && errors.size < CAUSES_MAX && !errors.has(error); error = causeOf(error)) errors.add(error);
  return [...errors];
}

function causeOf(error: Error): unknown {
  try {
    return error.cause;
  } catch {
    return undefined;
  }
}
