import { fileURLToPath } from 'node:url';
import { serveGateway } from './serve.js';
import { readGatewaySettings } from './settings.js';

/** The console's pages where the build of this repository leaves them: seen from here, since bundled this file stays where it is. */
const PAGES = fileURLToPath(new URL('../../../console/dist', import.meta.url));

async function main(): Promise<void> {
  const gateway = await serveGateway(readGatewaySettings(process.env), PAGES);
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void gateway.close().then(() => process.exit(process.exitCode ?? 0)));
  // Said whatever the log level is: whoever started the process waits for it.
  process.stdout.write(`${JSON.stringify({ level: 30, time: Date.now(), service: 'gateway', instance: gateway.instance, url: gateway.url, msg: 'ready' })}\n`);
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
});
