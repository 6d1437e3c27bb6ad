import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';

export type ComposeService = Readonly<{
  image?: string;
  build?: object;
  command?: readonly string[];
  environment?: Readonly<Record<string, string | number>>;
  ports?: readonly string[];
}>;
export type Compose = Readonly<{ services: Readonly<Record<string, ComposeService>> }>;

/** The checkout's root: where the image has /holdfast. */
export const ROOT = new URL('../../', import.meta.url);

export const readRootFile = (file: string): Promise<string> => readFile(new URL(file, ROOT), 'utf8');

export const parseCompose = (text: string): Compose => parse(text, { merge: true }) as Compose;
