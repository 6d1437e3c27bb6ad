import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import express from 'express';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { serveConsole } from '../src/http/console.js';

let folder: string;
let server: Server;
const get = async (address: string) => {
  const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${address}`);
  return { status: response.status, text: await response.text(), cache: response.headers.get('cache-control') };
};

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'hf-console-'));
  await mkdir(path.join(folder, 'assets'));
  await writeFile(path.join(folder, 'index.html'), '<p>console</p>');
  await writeFile(path.join(folder, 'assets', 'main.js'), 'main()');
  const app = express();
  // All that is used of the application is that it takes middleware.
  serveConsole(app as unknown as NestExpressApplication, folder);
  app.use((_, response) => void response.status(404).send('the API'));
  server = app.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
});
afterAll(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await rm(folder, { recursive: true });
});

it('serves the console at any address that is not the API’s', async () => {
  expect(await get('/')).toMatchObject({ status: 200, text: '<p>console</p>', cache: 'no-cache' });
  expect(await get('/runs/ticket-1001?tab=steps')).toMatchObject({ status: 200, text: '<p>console</p>' });
  expect(await get('/runs/order.2026-01')).toMatchObject({ status: 200, text: '<p>console</p>' });
  expect(await get('/assets/main.js')).toMatchObject({ status: 200, text: 'main()', cache: 'public, max-age=31536000, immutable' });
});

it('leaves to the API what is its own, and takes no address for a way out of its folder', async () => {
  for (const address of ['/v1', '/v1/runs', '/healthz', '/readyz', '/assets/none.js', '/..%2f..%2fetc%2fpasswd.txt']) expect([address, (await get(address)).text.includes('console')]).toEqual([address, false]);
});

it('serves nothing where it was not built', () => {
  const used: unknown[] = [];
  serveConsole({ use: (middleware: unknown) => used.push(middleware) } as unknown as NestExpressApplication, path.join(folder, 'nowhere'));
  expect(used).toEqual([]);
});
