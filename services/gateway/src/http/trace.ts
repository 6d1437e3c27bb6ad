import { AsyncLocalStorage } from 'node:async_hooks';
import { randomBytes } from 'node:crypto';
import { parseTraceparent, spanOf, traceOf, traceparentOf } from '@holdfast/protocol';
import { systemClock } from '@holdfast/runtime';
import type { Tracing } from '@holdfast/runtime/telemetry';
import type { Endpoint } from './endpoint.js';
import { Problem } from './problem.js';

/** A request under way, and the run that it turned out to ask something of. */
interface Asking {
  readonly span: string;
  run: string | null;
}

const asking = new AsyncLocalStorage<Asking>();

/** Says that the request under way asks something of a run; the `traceparent` for what is written of it, where traces are kept. */
export function askedOf(run: string): string | undefined {
  const request = asking.getStore();
  if (request === undefined) return undefined;
  request.run = run;
  return traceparentOf(traceOf(run), request.span);
}

/** Serves a request, and tells its span: in the trace of the run that it asked something of, else in the asker's own. */
export async function tracedRequest(tracing: Tracing, spec: Endpoint, traceparent: string | undefined, serve: () => Promise<void>, status: () => number): Promise<void> {
  const request: Asking = { span: randomBytes(8).toString('hex'), run: null };
  const startedAt = systemClock.now();
  let failed: number | null = null;
  try {
    await asking.run(request, serve);
  } catch (error) {
    failed = error instanceof Problem ? error.status : 500;
    throw error;
  } finally {
    const from = parseTraceparent(traceparent);
    const code = failed ?? status();
    const { run, span } = request;
    tracing.span({
      ...(run === null ? { trace: from?.trace ?? randomBytes(16).toString('hex'), parent: from?.span ?? null } : { trace: traceOf(run), parent: spanOf(run) }),
      ...{ span, name: `${spec.method.toUpperCase()} ${spec.path}`, kind: 'server', startedAt, endedAt: systemClock.now() },
      attributes: { 'http.request.method': spec.method.toUpperCase(), 'http.route': spec.path, 'http.response.status_code': code, ...(run === null ? {} : { 'holdfast.run': run }) },
      ...(code >= 500 ? { failed: String(code) } : {}),
      link: run === null ? null : from,
    });
  }
}
