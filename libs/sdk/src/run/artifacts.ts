import type { ArtifactRef, Json, Stored } from '@holdfast/protocol';
import { INLINE_BYTES_MAX, type SizedJson } from '../define/json.js';
import { NoArtifactStore, ResultUnreadable, clipped, messageOf } from '../errors.js';
import type { ArtifactPort } from '../host/artifacts.js';

/** Where large values are kept. `get` verifies the checksum and rejects when it doesn't fit. */
export interface RunArtifacts extends ArtifactPort {
  /** The bytes behind a reference. */
  get(ref: ArtifactRef): Promise<Uint8Array>;
}

export interface ArtifactScope {
  readonly tenant: string;
  readonly run: string;
}

export const tooLargeForMessage = (bytes: number): boolean => bytes > INLINE_BYTES_MAX;

const decoder = new TextDecoder();

/** The large values of one run. */
export class RunStore {
  constructor(
    private readonly artifacts: RunArtifacts | undefined,
    private readonly scope: ArtifactScope,
  ) {}

  /**
   * Keeps bytes.
   * @throws NoArtifactStore when the worker has none; whatever the store throws
   */
  put(bytes: Uint8Array, mediaType: string, what: string): Promise<ArtifactRef> {
    if (this.artifacts === undefined) return Promise.reject(new NoArtifactStore(`${what} has ${bytes.byteLength} bytes and this worker has no artifact store; give serve() one as "artifacts"`));
    return this.artifacts.put(bytes, { mediaType, scope: this.scope });
  }

  /** A value as it is recorded: inline when small, else by reference. Rejects like `put`. */
  keep({ value, bytes }: SizedJson, what: string): { readonly stored: Stored; readonly bytes: number } | Promise<{ readonly stored: Stored; readonly bytes: number }> {
    if (!tooLargeForMessage(bytes)) return { stored: { value }, bytes };
    return this.put(Buffer.from(JSON.stringify(value)), 'application/json', what).then((artifact) => ({ stored: { artifact }, bytes: 0 }));
  }

  /** The same for an effect's result: it has happened, so what can't be kept is named as unreadable. */
  async keepResult(value: Json, what: string): Promise<Stored> {
    try {
      return { artifact: await this.put(Buffer.from(JSON.stringify(value)), 'application/json', what) };
    } catch (error) {
      return { unreadable: clipped(messageOf(error), 2000) };
    }
  }

  /** The value behind a reference. Rejects while the store can't give it. */
  async load(ref: ArtifactRef, step: string): Promise<Json> {
    if (this.artifacts === undefined) throw new NoArtifactStore(`the result of step ${step} is an artifact and this worker has no artifact store; give serve() one as "artifacts"`);
    const bytes = await this.artifacts.get(ref);
    try {
      return JSON.parse(decoder.decode(bytes)) as Json;
    } catch (error) {
      throw new ResultUnreadable(step, `the artifact ${ref.sha256} is not JSON: ${messageOf(error)}`);
    }
  }
}
