import { createServer, type Server } from 'node:http';

export interface Health {
  /** Why it can't do its work, or null. */
  readonly unready: string | null;
  /** Why only a new start can help, or null. */
  readonly dead: string | null;
  /** What else is worth saying. */
  readonly facts: object;
}

/** The text of `/metrics`, and its media type. */
export interface Exposed {
  readonly contentType: string;
  metrics(): Promise<string>;
}

/** Serves `/healthz` (the process comes round), `/readyz` (all of it makes progress), with what is wrong as text, and `/metrics` for Prometheus. */
export function servePages(port: number, health: () => Health, exposed: Exposed): Server {
  const server = createServer((request, response) => {
    const say = (status: number, body: object): void => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    const about = (problem: string | null, facts: object): void => say(problem === null ? 200 : 503, problem === null ? { ok: true, ...facts } : { ok: false, problem, ...facts });
    const page = request.url?.split('?')[0];
    if (page === '/healthz' || page === '/readyz') {
      const { dead, unready, facts } = health();
      return about(page === '/healthz' ? dead : unready, facts);
    }
    if (page !== '/metrics') return say(404, { ok: false, problem: 'no such page: /healthz, /readyz or /metrics' });
    exposed.metrics().then(
      (text) => {
        response.writeHead(200, { 'content-type': exposed.contentType });
        response.end(text);
      },
      (error: unknown) => say(500, { ok: false, problem: error instanceof Error ? error.message : String(error) }),
    );
  });
  server.listen(port);
  return server;
}
