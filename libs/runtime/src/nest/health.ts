import { createServer, type Server } from 'node:http';
import type { LoopHealth } from '../loop/loop.js';

/** Beyond these an instance is not ready. Milliseconds. */
const UNPUBLISHED_MAX_MS = 10_000;
const STUCK_MAX_MS = 30_000;

/** Why an instance is not ready, or null. Healthy means progress, not that the process is up. */
export function unreadyBecause(health: LoopHealth): string | null {
  if (health.halted.length > 0) return health.halted.map(({ lane, reason }) => `lane ${lane}: ${reason}`).join('; ');
  if (health.unpublishedMs > UNPUBLISHED_MAX_MS) return `the oldest unpublished row has waited ${health.unpublishedMs} ms`;
  if (health.stuckMs > STUCK_MAX_MS) return `the loop has not come round for ${health.stuckMs} ms`;
  return null;
}

/** Serves `/healthz` (the loop comes round) and `/readyz` (all of it makes progress), with what is wrong as text. */
export function serveHealth(port: number, health: () => LoopHealth): Server {
  const server = createServer((request, response) => {
    const state = health();
    const problem = request.url === '/healthz' ? (state.stuckMs > STUCK_MAX_MS * 2 ? 'stuck' : null) : request.url === '/readyz' ? unreadyBecause(state) : 'no such page: /healthz or /readyz';
    response.writeHead(problem === null ? 200 : request.url === '/healthz' || request.url === '/readyz' ? 503 : 404, { 'content-type': 'application/json' });
    response.end(JSON.stringify(problem === null ? { ok: true, ...state } : { ok: false, problem, ...state }));
  });
  server.listen(port);
  return server;
}
