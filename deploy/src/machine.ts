import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { mavenMissing } from './errors.js';
import { jarsFolder, jarsAreFetched } from './jars.js';
import { KAFKA_CONTROLLER_PORT_SETTING, KAFKA_PORT_SETTING } from './kafka.js';
import { GATEWAY_PORT_SETTING, portsFrom } from './ports.js';
import { nativeFolder } from './postgres-binaries.js';
import { POSTGRES_PORT_SETTING } from './postgres.js';
import { requireDataDir, requireFreePort, requireJava } from './preflight.js';

const run = promisify(execFile);

/** One thing that the local stack needs of the machine. `problem`: one sentence that says what to do; null when all is well. */
export interface MachineCheck {
  readonly what: string;
  readonly problem: string | null;
}

const tried = async (what: string, work: () => Promise<unknown>): Promise<MachineCheck> => ({ what, problem: await work().then(() => null, (error: unknown) => (error instanceof Error ? error.message : String(error))) });

/**
 * What `holdfast up` would find wrong with this machine, all of it at once. Starts and creates nothing but the data folder.
 * A server that the environment names needs nothing here. `running`: ports are in use by the stack itself.
 */
export async function checkMachine({ dir, env = process.env, running }: { readonly dir: string; readonly env?: NodeJS.ProcessEnv; readonly running: boolean }): Promise<MachineCheck[]> {
  const ownKafka = env['HOLDFAST_BROKERS'] === undefined;
  const ownPostgres = env['HOLDFAST_DATABASE_URL'] === undefined;
  const checks: Promise<MachineCheck>[] = [];
  if (ownKafka) {
    checks.push(tried('Java', () => requireJava(env)));
    checks.push(tried('Kafka’s jars', async () => {
      if (await jarsAreFetched()) return;
      await run('mvn', ['-v'], { env }).catch(() => Promise.reject(mavenMissing(jarsFolder())));
    }));
  }
  if (ownPostgres) checks.push(tried('PostgreSQL’s programs', nativeFolder));
  if (ownKafka || ownPostgres) checks.push(tried(`the data folder ${path.resolve(dir)}`, () => requireDataDir(dir)));
  if (!running) {
    checks.push(tried('ports', async () => {
      const ports = portsFrom(env);
      if (ownKafka) await requireFreePort('Kafka', ports.kafka, KAFKA_PORT_SETTING);
      if (ownKafka) await requireFreePort("Kafka's controller", ports.kafkaController, KAFKA_CONTROLLER_PORT_SETTING);
      if (ownPostgres) await requireFreePort('PostgreSQL', ports.postgres, POSTGRES_PORT_SETTING);
      if (env['HOLDFAST_GATEWAY'] !== 'off') await requireFreePort('The gateway', ports.gateway, GATEWAY_PORT_SETTING);
    }));
  }
  return Promise.all(checks);
}
