import { Server, type CustomTransportStrategy } from '@nestjs/microservices';

/** What the transport runs: the loop of one instance. */
export interface Running {
  start(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * The loop as a Nest transport: Nest starts it with `listen` and ends it with `close`, in the order
 * that its lifecycle gives, so that fetching has stopped before a provider loses its database.
 */
export class LoopTransport extends Server implements CustomTransportStrategy {
  #running: Running | null = null;

  /** Gives the transport its loop, made from the application's own providers. */
  use(running: Running): void {
    this.#running = running;
  }

  override listen(callback: (error?: unknown) => void): void {
    if (this.#running === null) return callback(new Error('the transport has no loop: call use() before listen()'));
    this.#running.start().then(() => callback(), callback);
  }

  override async close(): Promise<void> {
    await this.#running?.stop();
  }

  override on(): never {
    throw new Error('the loop has no transport events; ask its health instead');
  }

  override unwrap<T>(): T {
    return this.#running as T;
  }
}
