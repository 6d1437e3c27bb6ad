import { serveGateway } from './serve.js';
import { readGatewaySettings } from './settings.js';

try {
  const gateway = await serveGateway(readGatewaySettings(process.env));
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void gateway.close().then(() => process.exit(process.exitCode ?? 0)));
  // Said whatever the log level is: whoever started the process waits for it.
  process.stdout.write(`${JSON.stringify({ level: 30, time: Date.now(), service: 'gateway', instance: gateway.instance, url: gateway.url, msg: 'ready' })}\n`);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}
