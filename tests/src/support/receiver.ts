import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Posted {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Takes posts, and answers each path with the statuses given for it, in order; then with 204. */
export async function startReceiver(): Promise<{ url: string; posted: Posted[]; answers: Map<string, number[]>; close(): Promise<void> }> {
  const posted: Posted[] = [];
  const answers = new Map<string, number[]>();
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const path = request.url ?? '';
      posted.push({ path, headers: request.headers, body: Buffer.concat(chunks).toString() });
      response.writeHead(answers.get(path)?.shift() ?? 204).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, posted, answers, close: () => new Promise<void>((resolve) => void server.close(() => resolve())) };
}
