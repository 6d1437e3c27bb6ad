import { expect, test } from '@jest/globals';
import { ArtifactDamaged, ArtifactDenied, ArtifactMissing, type ArtifactStore } from '../../src/artifacts/index.js';

export const run = { tenant: 'acme', run: 'order-7' };
export const bytes = new TextEncoder().encode('"a large value"');

/** What a store's tests give to those that every store passes. All of it is of the present test. */
export interface StoreKit {
  readonly store: () => ArtifactStore;
  /** Another process's store at the same place. */
  readonly another: () => ArtifactStore;
  /** Files that hold what is kept. */
  readonly kept: () => Promise<string[]>;
  /** Writes over what is kept in a file. */
  readonly tamper: (file: string, content: string) => Promise<void>;
  /** Makes all that is kept older. */
  readonly pass: (ms: number) => Promise<void>;
}

export const HOUR_MS = 60 * 60 * 1000;
/** Counted in whole hours by some. */
const RETENTION = { olderThanMs: 24 * HOUR_MS };

/** The tests that every artifact store passes. */
export function artifactStoreContract({ store, another, kept, tamper, pass }: StoreKit): void {
  const onlyKept = async (): Promise<string> => {
    const [file, ...others] = await kept();
    expect(others).toEqual([]);
    return file ?? 'none';
  };

  test('gives back what was stored, under the hash of its bytes', async () => {
    const ref = await store().put(bytes, { mediaType: 'application/json', scope: run });
    expect(ref).toEqual({ sha256: expect.stringMatching(/^[0-9a-f]{64}$/), bytes: bytes.byteLength, mediaType: 'application/json', scope: 'acme/order-7' });
    expect(Buffer.from(await another().get(ref, run)).equals(Buffer.from(bytes))).toBe(true);
    expect(await onlyKept()).toContain(ref.sha256);
  });

  test('nothing and any byte at all can be stored', async () => {
    for (const value of [new Uint8Array(), Uint8Array.from({ length: 300_000 }, (_, i) => i % 256)]) {
      const ref = await store().put(value, { mediaType: 'application/octet-stream', scope: run });
      expect(Buffer.from(await store().get(ref, run)).equals(Buffer.from(value))).toBe(true);
    }
  });

  test('storing the same value again keeps it once, and nothing half-written', async () => {
    const refs = await Promise.all(Array.from({ length: 20 }, () => store().put(bytes, { mediaType: 'text/plain', scope: run })));
    expect(new Set(refs.map((ref) => ref.sha256)).size).toBe(1);
    await onlyKept();
    expect(await store().get(refs[0] as (typeof refs)[number], run)).toHaveLength(bytes.byteLength);
  });

  test('what is damaged is told by its checksum, what is cut too, and storing the value again mends it', async () => {
    const ref = await store().put(bytes, { mediaType: 'text/plain', scope: run });
    await tamper(await onlyKept(), '"a large valuE"');
    await expect(store().get(ref, run)).rejects.toBeInstanceOf(ArtifactDamaged);
    await tamper(await onlyKept(), '');
    await expect(store().get(ref, run)).rejects.toThrow(/damaged.*0 bytes/);
    await expect(store().get(ref, run)).rejects.toBeInstanceOf(ArtifactDamaged);
    await store().put(bytes, { mediaType: 'text/plain', scope: run });
    expect(new TextDecoder().decode(await store().get(ref, run))).toBe('"a large value"');
  });

  test('another run and another tenant may not read it, the tenant itself may', async () => {
    const ref = await store().put(bytes, { mediaType: 'text/plain', scope: run });
    await expect(store().get(ref, { tenant: 'acme', run: 'order-8' })).rejects.toBeInstanceOf(ArtifactDenied);
    await expect(store().get(ref, { tenant: 'acm' })).rejects.toBeInstanceOf(ArtifactDenied);
    await expect(store().get(ref, { tenant: 'evil', run: 'order-7' })).rejects.toBeInstanceOf(ArtifactDenied);
    expect(await store().get(ref, { tenant: 'acme' })).toHaveLength(bytes.byteLength);
  });

  test('knowing a hash opens nothing: a reference forged for the own scope finds nothing', async () => {
    const ref = await store().put(bytes, { mediaType: 'text/plain', scope: run });
    await expect(store().get({ ...ref, scope: 'evil/order-7' }, { tenant: 'evil', run: 'order-7' })).rejects.toBeInstanceOf(ArtifactMissing);
  });

  test('ids that hold the separator or are very long never share a scope', async () => {
    const put = (tenant: string, id: string) => store().put(bytes, { mediaType: 'text/plain', scope: { tenant, run: id } });
    const long = 'ü'.repeat(199);
    const refs = await Promise.all([put('a/b', 'c'), put('a', 'b/c'), put(`${long}1`, `${long}2`), put(`${long}2`, `${long}1`), put('=a', 'b')]);
    expect(new Set(refs.map((ref) => ref.scope)).size).toBe(5);
    expect(await kept()).toHaveLength(5);
    expect(await store().get(refs[2] as (typeof refs)[number], { tenant: `${long}1` })).toHaveLength(bytes.byteLength);
  });

  test('a reference that would lead elsewhere is refused', async () => {
    await expect(store().get({ sha256: '../../../etc/passwd', bytes: 1, mediaType: 'x', scope: 'acme/order-7' }, run)).rejects.toThrow(/sha256/);
  });

  test('the sweep takes what is older and leaves the rest', async () => {
    const old = await store().put(bytes, { mediaType: 'text/plain', scope: run });
    await pass(RETENTION.olderThanMs + HOUR_MS);
    const young = await store().put(new TextEncoder().encode('young'), { mediaType: 'text/plain', scope: { tenant: 'acme', run: 'order-9' } });
    expect(await store().sweep(RETENTION)).toEqual({ removed: 1, bytes: bytes.byteLength });
    await expect(store().get(old, run)).rejects.toBeInstanceOf(ArtifactMissing);
    expect(await store().get(young, { tenant: 'acme', run: 'order-9' })).toHaveLength(5);
    await onlyKept();
    expect(await store().sweep(RETENTION)).toEqual({ removed: 0, bytes: 0 });
  });

  test('storing again begins the retention anew', async () => {
    const ref = await store().put(bytes, { mediaType: 'text/plain', scope: run });
    await pass(RETENTION.olderThanMs + HOUR_MS);
    await store().put(bytes, { mediaType: 'text/plain', scope: run });
    await store().sweep(RETENTION);
    expect(await store().get(ref, run)).toHaveLength(bytes.byteLength);
    await onlyKept();
  });
}
