import { DeleteObjectCommand, GetObjectCommand, NoSuchKey, paginateListObjectsV2, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import type { ArtifactRef } from '@holdfast/protocol';
import { damaged, intact, missing, permitted, refOf } from './checked.js';
import { sha256 } from './digest.js';
import { ArtifactDamaged, type ArtifactScope, type ArtifactStore } from './store.js';

const PERIOD_MS = 60 * 60 * 1000;
const CONNECT_MS = 3000;
/** How long a request may stand without a byte moving. */
const IDLE_MS = 15_000;
/** Deletions under way at once. */
const SWEEP_AT_ONCE = 20;

export interface S3Place {
  readonly bucket: string;
  /** What the names of its objects begin with; empty, or without a slash at either end. */
  readonly prefix: string;
}

/**
 * Artifacts as objects in an S3-compatible bucket, one for each scope, value and hour of storing:
 * `<prefix>/<hash of the scope>/<hash of the bytes>/<hour>`. The hour is in the name so that a sweep
 * deletes an object that nobody writes any more: with one object for all times it could delete what
 * is stored again at that very moment, since S3 can't delete on condition of an age.
 *
 * Region, credentials and endpoint come from where AWS's own tools take them (`AWS_REGION`,
 * `AWS_ACCESS_KEY_ID`, profiles, roles, `AWS_ENDPOINT_URL_S3`). Another endpoint than AWS's is asked
 * with the bucket in the path. The client repeats what failed for a moment: what it stores is named
 * by its content, so that storing twice is storing once.
 */
export function s3ArtifactStore({ bucket, prefix }: S3Place, now: () => number = Date.now): ArtifactStore {
  const client = new S3Client({
    forcePathStyle: (process.env['AWS_ENDPOINT_URL_S3'] ?? process.env['AWS_ENDPOINT_URL'] ?? '') !== '',
    // Other stores than AWS's know few of its checksums; ours is checked on every read.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: { connectionTimeout: CONNECT_MS, socketTimeout: IDLE_MS },
  });
  const root = prefix === '' ? '' : `${prefix}/`;
  const folderOf = (ref: ArtifactRef): string => `${root}${sha256(ref.scope)}/${ref.sha256}/`;
  const asking = <T>(work: Promise<T>): Promise<T> =>
    work.catch((error: unknown) => {
      if (error instanceof ArtifactDamaged) throw error;
      throw new Error(`the artifact store s3://${bucket}/${prefix} did not do as asked: ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`, { cause: error });
    });

  async function* objects(under: string): AsyncGenerator<readonly { readonly key: string; readonly bytes: number }[]> {
    for await (const page of paginateListObjectsV2({ client }, { Bucket: bucket, Prefix: under })) {
      yield (page.Contents ?? []).flatMap(({ Key: key, Size: bytes = 0 }) => (key === undefined ? [] : [{ key, bytes }]));
    }
  }

  /** Null: it is gone. */
  async function read(key: string, ref: ArtifactRef): Promise<Uint8Array | null> {
    const { Body: body, ContentLength: length } = await client.send(new GetObjectCommand({ Bucket: bucket, Key: key })).catch((error: unknown) => {
      if (error instanceof NoSuchKey) return { Body: undefined, ContentLength: undefined };
      throw error;
    });
    if (body === undefined) return null;
    if (length !== undefined && length !== ref.bytes) {
      await body.transformToWebStream().cancel();
      throw damaged(ref, `s3://${bucket}/${key} has ${length} bytes`);
    }
    return body.transformToByteArray();
  }

  return {
    async put(bytes: Uint8Array, about: { readonly mediaType: string; readonly scope: ArtifactScope }): Promise<ArtifactRef> {
      const ref = refOf(bytes, about);
      const key = `${folderOf(ref)}${periodAt(now())}`;
      // The store compares the checksum with what arrived, where it knows it.
      await asking(client.send(new PutObjectCommand({ Bucket: bucket, Key: key, Body: bytes, ContentLength: bytes.byteLength, ChecksumSHA256: Buffer.from(ref.sha256, 'hex').toString('base64') })));
      return ref;
    },

    async get(ref: ArtifactRef, scope: ArtifactScope): Promise<Uint8Array> {
      const asked = permitted(ref, scope);
      const keys = await asking(namesOf(objects(folderOf(asked))));
      // The newest first: a sweep takes older ones away meanwhile.
      for (const key of keys.sort().reverse()) {
        const bytes = await asking(read(key, asked));
        if (bytes !== null) return intact(asked, bytes);
      }
      throw missing(asked);
    },

    async sweep({ olderThanMs }): Promise<{ removed: number; bytes: number }> {
      const before = now() - olderThanMs;
      const swept = { removed: 0, bytes: 0 };
      const remove = async ({ key, bytes }: { readonly key: string; readonly bytes: number }): Promise<void> => {
        await client.send(new DeleteObjectCommand({ Bucket: bucket, Key: key }));
        swept.removed += 1;
        swept.bytes += bytes;
      };
      await asking(
        (async () => {
          for await (const page of objects(root)) {
            const old = page.filter(({ key }) => endOf(key.slice(root.length)) <= before);
            for (let i = 0; i < old.length; i += SWEEP_AT_ONCE) await Promise.all(old.slice(i, i + SWEEP_AT_ONCE).map(remove));
          }
        })(),
      );
      return swept;
    },
  };
}

async function namesOf(pages: AsyncIterable<readonly { readonly key: string }[]>): Promise<string[]> {
  const keys: string[] = [];
  for await (const page of pages) for (const { key } of page) keys.push(key);
  return keys;
}

/** Such as `2026-05-01T13`: names sort by time. */
const periodAt = (at: number): string => new Date(at).toISOString().slice(0, 13);

/** When the last value of an object's period can have been stored; never, where the object is none of ours. */
function endOf(name: string): number {
  const [, period] = /^[0-9a-f]{64}\/[0-9a-f]{64}\/(\d{4}-\d\d-\d\dT\d\d)$/.exec(name) ?? [];
  const begin = period === undefined ? NaN : Date.parse(`${period}:00:00.000Z`);
  return Number.isNaN(begin) ? Infinity : begin + PERIOD_MS;
}
