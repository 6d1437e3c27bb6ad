import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import path from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { StackError } from '../src/errors.js';
import { portsFrom } from '../src/ports.js';
import { javaCommand, javaMajor, requireDataDir, requireFreePort, requireJava } from '../src/preflight.js';
import { freshFolder, removeFolders } from './folders.js';

afterAll(removeFolders);

async function javaHome(script: string): Promise<string> {
  const home = await freshFolder();
  await mkdir(path.join(home, 'bin'));
  await writeFile(path.join(home, 'bin', 'java'), `#!/bin/sh\n${script}\n`);
  await chmod(path.join(home, 'bin', 'java'), 0o755);
  return home;
}

describe('Java', () => {
  test.each([
    ['openjdk version "17.0.15" 2025-04-15', 17],
    ['java version "1.8.0_402"', 8],
    ['openjdk version "21" 2023-09-19', 21],
    ['Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25.0.1"', 25],
    ['no Java here', undefined],
  ])('%j is version %s', (output, major) => {
    expect(javaMajor(output)).toBe(major);
  });

  test('is taken from JAVA_HOME when that is set, else from the path', () => {
    expect(javaCommand({ JAVA_HOME: '/opt/jdk' })).toBe('/opt/jdk/bin/java');
    expect(javaCommand({ JAVA_HOME: '' })).toBe('java');
  });

  test('that is new enough is accepted', async () => {
    const home = await javaHome(`echo 'openjdk version "17.0.1"' >&2`);
    await expect(requireJava({ JAVA_HOME: home })).resolves.toBe(path.join(home, 'bin', 'java'));
  });

  test('that is too old is named, with what to do', async () => {
    const home = await javaHome(`echo 'openjdk version "11.0.22"' >&2`);
    await expect(requireJava({ JAVA_HOME: home })).rejects.toThrow(/needs Java 17 or newer and found Java 11: install a newer one, or set JAVA_HOME/);
  });

  test('that is missing is said to be, with what to do', async () => {
    await expect(requireJava({ JAVA_HOME: await freshFolder() })).rejects.toThrow(/needs Java 17 or newer and none was found: install/);
  });
});

describe('a port', () => {
  test('in use is named, with the setting that moves it', async () => {
    const holder = createServer();
    const port = await new Promise<number>((resolve) => {
      holder.listen(0, '127.0.0.1', () => resolve((holder.address() as { port: number }).port));
    });
    await expect(requireFreePort('Kafka', port, 'HOLDFAST_KAFKA_PORT')).rejects.toThrow(
      `Kafka can't listen on port ${port}, which is in use: stop what listens there or set HOLDFAST_KAFKA_PORT to a free port.`,
    );
    await new Promise((resolve) => holder.close(resolve));
    await expect(requireFreePort('Kafka', port, 'HOLDFAST_KAFKA_PORT')).resolves.toBeUndefined();
  });

  test('comes from its setting or is the default', () => {
    expect(portsFrom({})).toEqual({ kafka: 19092, kafkaController: 19093, postgres: 15432, gateway: 18080 });
    expect(portsFrom({ HOLDFAST_KAFKA_PORT: '9092', HOLDFAST_KAFKA_CONTROLLER_PORT: '9093', HOLDFAST_POSTGRES_PORT: '5432', HOLDFAST_HTTP_PORT: '8080' })).toEqual({
      kafka: 9092,
      kafkaController: 9093,
      postgres: 5432,
      gateway: 8080,
    });
  });

  test.each(['0', '65536', 'kafka', '90.5'])('%j is refused with a sentence', (value) => {
    expect(() => portsFrom({ HOLDFAST_KAFKA_PORT: value })).toThrow(`HOLDFAST_KAFKA_PORT is '${value}', which is not a port`);
  });
});

describe('a data folder', () => {
  test('is made when it is missing', async () => {
    const dir = path.join(await freshFolder(), 'deep', 'down');
    await expect(requireDataDir(dir)).resolves.toBeUndefined();
  });

  test('that cannot be made is named', async () => {
    const file = path.join(await freshFolder(), 'file');
    await writeFile(file, '');
    await expect(requireDataDir(path.join(file, 'data'))).rejects.toThrow(/The data folder .*file\/data can't be written/);
  });

  test('on a disk with too little space is refused, with what is there and what is needed', async () => {
    await expect(requireDataDir(await freshFolder(), Number.MAX_SAFE_INTEGER)).rejects.toThrow(/has \d+ MiB free and the local stack needs \d+ MiB/);
    await expect(requireDataDir(await freshFolder(), Number.MAX_SAFE_INTEGER)).rejects.toBeInstanceOf(StackError);
  });
});
