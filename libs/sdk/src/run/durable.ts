/**
 * A promise that knows whether anybody waits for it. Its rejection alone never becomes an unhandled
 * one: a call that nobody awaited is found at the run's end and named, and hurts no other run.
 */
export class DurablePromise<T> extends Promise<T> {
  /** Derived promises are plain ones. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  #onAwaited: (() => void) | null = null;

  whenAwaited(callback: () => void): void {
    this.#onAwaited = callback;
  }

  get awaited(): boolean {
    return this.#onAwaited === null;
  }

  override then<A = T, B = never>(onFulfilled?: ((value: T) => A | PromiseLike<A>) | null, onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<A | B> {
    this.#onAwaited?.();
    this.#onAwaited = null;
    return super.then(onFulfilled, onRejected);
  }

  /** To be called before it rejects. */
  hush(): void {
    if (this.#onAwaited !== null) void super.then(undefined, () => undefined);
  }
}

/** A promise for code that must make no further progress. */
export const never = (): Promise<never> => new Promise<never>(() => undefined);
