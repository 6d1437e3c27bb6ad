import { once } from 'node:events';
import { chmod, mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { startKafka } from './kafka.js';
import { Lender, type Servers } from './lender.js';
import { startPostgres } from './postgres.js';
import { makeSeed, sow } from './seed.js';

/**
 * `node dist/dev.js DIR [--temporary]`: Kafka and PostgreSQL in the foreground, on free ports, until SIGTERM or SIGINT.
 * One line of JSON on stdout says where they are. With --temporary the folder goes at the end, and the end
 * is also that of stdin: so whoever started us need not be alive to have things tidied up. `seed` is then a folder
 * that stacks which are to be thrown away may begin with (`sow`), and `lender` the address of servers that may be
 * had for a while (`lender.ts`).
 */
const folder = process.argv.slice(2).find((word) => !word.startsWith('--'));
const temporary = process.argv.includes('--temporary');
if (folder === undefined) {
  process.stderr.write('usage: node dist/dev.js DIR [--temporary]\n');
  process.exit(2);
}
const dir = path.resolve(folder);
const seed = temporary ? path.join(dir, 'seed') : undefined;
const log = (line: string): void => void process.stderr.write(`${line}\n`);

// Whoever started us may be gone when we have something to say.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined);

const asked = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT'), ...(temporary ? [once(process.stdin.resume(), 'close')] : [])]);

async function start(at: string): Promise<Servers> {
  if (seed !== undefined) await sow(seed, at);
  // PostgreSQL's own user must be able to pass through, and temporary folders are made closed.
  if (temporary) await chmod(at, 0o711);
  const starting = [startKafka({ dir: path.join(at, 'kafka'), log }), startPostgres({ dir: path.join(at, 'postgres'), durable: !temporary, log })] as const;
  const [kafka, postgres] = await Promise.allSettled(starting);
  if (kafka.status === 'fulfilled' && postgres.status === 'fulfilled') return { kafka: kafka.value, postgres: postgres.value };
  if (kafka.status === 'fulfilled') await kafka.value.stop();
  if (postgres.status === 'fulfilled') await postgres.value.stop();
  throw kafka.status === 'rejected' ? kafka.reason : (postgres as PromiseRejectedResult).reason;
}

try {
  await mkdir(dir, { recursive: true });
  if (temporary) await chmod(dir, 0o711);
  if (seed !== undefined) await makeSeed(seed, log);
  const { kafka, postgres } = await start(dir);
  const lending = temporary ? new Lender({ start, dirOf: (id) => path.join(dir, `lent-${id}`), log }) : undefined;
  const lender = await lending?.listen();
  process.stdout.write(`${JSON.stringify({ brokers: kafka.brokers, databaseUrl: postgres.url(), seed, lender })}\n`);
  await asked;
  await Promise.all([kafka.stop(), postgres.stop(), lending?.close()]);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
} finally {
  if (temporary) await rm(dir, { recursive: true, force: true });
  process.stdin.destroy();
}
