import { open } from 'node:fs/promises';

/** Hands over the lines that are added to a file, each once, when asked to look. */
export class LineFollower {
  #rest: Buffer<ArrayBufferLike> = Buffer.alloc(0);
  #looking: Promise<void> = Promise.resolve();

  constructor(
    private readonly file: string,
    private offset: number,
    private readonly onLine: (line: string) => void,
  ) {}

  /** One look at a time: two at once would both read from the same offset. */
  look(): Promise<void> {
    this.#looking = this.#looking.catch(() => undefined).then(() => this.read());
    return this.#looking;
  }

  private async read(): Promise<void> {
    const handle = await open(this.file, 'r');
    try {
      const { size } = await handle.stat();
      if (size <= this.offset) return;
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(size - this.offset), 0, size - this.offset, this.offset);
      this.offset += bytesRead;
      this.#rest = Buffer.concat([this.#rest, buffer.subarray(0, bytesRead)]);
    } finally {
      await handle.close();
    }
    // Cut at bytes, not characters: a look may end in the middle of one.
    for (let end = this.#rest.indexOf('\n'); end >= 0; end = this.#rest.indexOf('\n')) {
      this.onLine(this.#rest.toString('utf8', 0, end));
      this.#rest = this.#rest.subarray(end + 1);
    }
  }
}
