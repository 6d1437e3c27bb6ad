import { createPrivateKey, createPublicKey, generateKeyPairSync, sign, verify } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { topics } from '@holdfast/protocol';
import { z } from 'zod';
import { CliError } from '../failure.js';
import { readStreams } from './read-events.js';

const Head = z.object({ version: z.number().int().min(1), hash: z.string().regex(/^[0-9a-f]{64}$/) });

/** Heads of all streams at one time, signed (Ed25519): kept elsewhere, it shows a tail that was cut later. */
const Signed = z.object({ at: z.string(), heads: z.record(z.string(), z.record(z.string(), Head)) });
const AnchorFile = Signed.extend({ publicKey: z.string(), signature: z.string() });
export type Anchor = z.infer<typeof Signed>;

const payload = ({ at, heads }: Anchor): Buffer => Buffer.from(JSON.stringify({ at, heads }));

/** Reads the heads of all chains and signs them with the key at `keyFile`, which is made when missing. */
export async function makeAnchor(brokers: readonly string[], keyFile: string, now: Date): Promise<z.infer<typeof AnchorFile>> {
  const heads: Record<string, Record<string, z.infer<typeof Head>>> = {};
  for (const topic of [topics.runEvents, topics.effectEvents, topics.reconciliationEvents, topics.compensationEvents]) {
    const of: Record<string, z.infer<typeof Head>> = {};
    for (const { stream, events } of (await readStreams(brokers, topic)).values()) {
      const last = events.at(-1)?.envelope;
      if (last !== undefined) of[stream] = { version: last.version, hash: last.hash };
    }
    heads[topic] = of;
  }
  const key = createPrivateKey(await privateKey(keyFile));
  const anchor: Anchor = { at: now.toISOString(), heads };
  return {
    ...anchor,
    publicKey: createPublicKey(key).export({ type: 'spki', format: 'pem' }).toString(),
    signature: sign(null, payload(anchor), key).toString('base64'),
  };
}

async function privateKey(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch {
    const pem = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, pem, { mode: 0o600, flag: 'wx' });
    return pem;
  }
}

/** Reads an anchor and checks its signature; with `publicKeyFile`, against that key rather than its own. */
export async function readAnchor(file: string, publicKeyFile?: string): Promise<Anchor> {
  const text = await readFile(file, 'utf8').catch(() => {
    throw new CliError(`anchor ${file} can't be read`);
  });
  const parsed = AnchorFile.safeParse(JSON.parse(text));
  if (!parsed.success) throw new CliError(`${file} is not an anchor made by \`holdfast audit anchor\``);
  const { publicKey, signature, ...anchor } = parsed.data;
  const trusted = publicKeyFile === undefined ? publicKey : await readFile(publicKeyFile, 'utf8');
  if (!verify(null, payload(anchor), createPublicKey(trusted), Buffer.from(signature, 'base64'))) {
    throw new CliError(`the signature of anchor ${file} is not valid${publicKeyFile === undefined ? '' : ` for the key in ${publicKeyFile}`}: it was changed after it was signed`);
  }
  return anchor;
}
