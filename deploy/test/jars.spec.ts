import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeEach, describe, expect, test } from '@jest/globals';
import { kafkaJars } from '../src/jars.js';
import { freshFolder, removeFolders } from './folders.js';

afterAll(removeFolders);

/** Says what Maven would: each call leaves a line in `calls`, and a jar where it was asked to. */
const FETCHES = `
for word in "$@"; do case "$word" in -DoutputDirectory=*) into="\${word#*=}";; esac; done
echo call >> "$CALLS"
mkdir -p "$into" && echo jar > "$into/kafka.jar"
`;
/** A process id that no process has: above what Linux gives out. */
const NOBODY = 2 ** 22 + 1;

let folder: string;
let bin: string;
let calls: string;
const said: string[] = [];

async function maven(script: string): Promise<void> {
  await writeFile(path.join(bin, 'mvn'), `#!/bin/sh\n${script}\n`);
  await chmod(path.join(bin, 'mvn'), 0o755);
}

const fetchJars = (): Promise<string> => kafkaJars((line) => said.push(line), { folder, env: { PATH: `${bin}:/usr/bin:/bin`, CALLS: calls } });
const callCount = async (): Promise<number> => (await readFile(calls, 'utf8').catch(() => '')).split('\n').filter(Boolean).length;

beforeEach(async () => {
  folder = await freshFolder();
  bin = await freshFolder();
  calls = path.join(folder, 'calls');
  said.length = 0;
  await writeFile(path.join(folder, 'pom.xml'), '<project/>');
});

describe("Kafka's jars", () => {
  test('are fetched once, and that is announced', async () => {
    await maven(FETCHES);
    const libs = await fetchJars();
    await fetchJars();
    await expect(readFile(path.join(libs, 'kafka.jar'), 'utf8')).resolves.toBe('jar\n');
    expect(await callCount()).toBe(1);
    expect(said).toEqual(["Fetching Kafka's jars with Maven (once, about 45 MB) ..."]);
  });

  test('are fetched once by two who start at the same time', async () => {
    await maven(FETCHES);
    await Promise.all([fetchJars(), fetchJars()]);
    expect(await callCount()).toBe(1);
  });

  test('are fetched again when the manifest names others', async () => {
    await maven(FETCHES);
    await fetchJars();
    await writeFile(path.join(folder, 'pom.xml'), '<project><!-- newer --></project>');
    await fetchJars();
    expect(await callCount()).toBe(2);
  });

  test('are fetched although one who died left the lock', async () => {
    await maven(FETCHES);
    await mkdir(path.join(folder, 'target'));
    await writeFile(path.join(folder, 'target', 'fetching.pid'), String(NOBODY));
    await fetchJars();
    expect(await callCount()).toBe(1);
  });

  test('that are there need no Maven', async () => {
    await maven(FETCHES);
    const libs = await fetchJars();
    await rm(path.join(bin, 'mvn'));
    await expect(fetchJars()).resolves.toBe(libs);
  });

  test('without Maven are missing, and that is said with what to do', async () => {
    await expect(kafkaJars(() => undefined, { folder, env: { PATH: bin } })).rejects.toThrow(/jars are not in .*libs and Maven, .* was not found: install Maven/);
  });

  test("that Maven can't fetch are missing, with Maven's first error, and no lock stays", async () => {
    await maven('echo "[ERROR] no route to the repository"; exit 1');
    await expect(fetchJars()).rejects.toThrow(/could not be fetched with Maven \(no route to the repository\): check the network/);
    await maven(FETCHES);
    await fetchJars();
    expect(await callCount()).toBe(1);
  });
});
