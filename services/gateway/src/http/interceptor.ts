import { once } from 'node:events';
import { randomUUID } from 'node:crypto';
import { type CallHandler, type ExecutionContext, Injectable, type NestInterceptor } from '@nestjs/common';
import { describeIssues, type Json } from '@holdfast/protocol';
import { systemClock } from '@holdfast/runtime';
import type { Tracing } from '@holdfast/runtime/telemetry';
import type { Response } from 'express';
import { firstValueFrom, from, type Observable } from 'rxjs';
import type { z } from 'zod';
import type { Audit } from '../access/audit.js';
import type { Principal } from '../domain/access.js';
import { jsonOf, WRONG_MEDIA_TYPE } from './body.js';
import { endpointOf, giveCall, type Answer, type Call, type Endpoint, type Visited } from './endpoint.js';
import type { Authentication } from './guard.js';
import { Idempotency, type Claim, type KeptAnswer } from './idempotency.js';
import { Problem } from './problem.js';
import { tracedRequest } from './trace.js';

/** Keeps proxies from taking a quiet stream for a dead one, and finds out that a key was revoked. Milliseconds. */
const BEAT_MS = 15_000;
const NOBODY: Principal = { id: '', name: 'nobody', tenant: '', roles: [], tools: [], amountMax: 0 };

/** Checks a request by its endpoint's schemas, and writes what the handler answers. */
@Injectable()
export class AnswerInterceptor implements NestInterceptor {
  constructor(
    private readonly idempotency: Idempotency,
    private readonly authentication: Authentication,
    private readonly audit: Audit,
    private readonly stopping: AbortSignal,
    private readonly tracing: Tracing | null = null,
  ) {}

  intercept(context: ExecutionContext, next: CallHandler<Answer>): Observable<void> {
    const spec = endpointOf(context.getHandler());
    if (this.tracing === null || spec === undefined || spec.may === 'public') return from(this.#serve(context, next));
    const http = context.switchToHttp();
    return from(tracedRequest(this.tracing, spec, http.getRequest<Visited>().get('traceparent'), () => this.#serve(context, next), () => http.getResponse<Response>().statusCode));
  }

  async #serve(context: ExecutionContext, next: CallHandler<Answer>): Promise<void> {
    const spec = endpointOf(context.getHandler());
    if (spec === undefined) throw new Problem('not-found', 'there is nothing at this address');
    const request = context.switchToHttp().getRequest<Visited>();
    const response = context.switchToHttp().getResponse<Response>();
    const principal = request.principal ?? NOBODY;
    const key = spec.method === 'get' || spec.may === 'public' ? null : Idempotency.keyIn(request.get('idempotency-key'));
    const body = bodyOf(spec, request);
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const call: Call = {
      params: checked(spec.params, request.params, 'path'),
      query: queryOf(spec, request.query),
      body: spec.body === undefined ? undefined : checked(spec.body, body, 'body'),
      principal,
      command: key === null ? randomUUID() : Idempotency.command(principal, key),
      header: (name) => request.get(name),
      address: request.socket.remoteAddress ?? 'unknown',
      signal: AbortSignal.any([gone.signal, this.stopping]),
    };
    giveCall(request, call);
    if (key === null) {
      if (spec.act !== undefined) await this.audit.tell(spec.act, request.originalUrl, call);
      return this.#write(response, request, await firstValueFrom(next.handle()), call);
    }
    const begun = await this.idempotency.begin(principal, key, Idempotency.fingerprint(request.method, request.originalUrl, body ?? null));
    if ('kept' in begun) {
      const { status, headers, body: text } = begun.kept;
      send(response, status, { ...headers, 'idempotency-replayed': 'true' }, text);
      return;
    }
    const letGo = this.idempotency.hold(begun.claim);
    await this.#answerOnce(spec, request, response, call, begun.claim, next).finally(letGo);
  }

  /** What was decided is kept, a refusal too; what failed on the way, never reached its owner or was refused only for now is not, so that it may be tried again. */
  async #answerOnce(spec: Endpoint, request: Visited, response: Response, call: Call, claim: Claim, next: CallHandler<Answer>): Promise<void> {
    try {
      if (spec.act !== undefined) await this.audit.tell(spec.act, request.originalUrl, call);
      const answer = await firstValueFrom(next.handle());
      if ('stream' in answer) throw new Error(`${spec.id} streams, and takes an Idempotency-Key`);
      const { status, headers = {} } = answer;
      const body = textOf(answer.body);
      // One that is still being decided is asked for again, under the same command, and then has its answer.
      if (status === 202) await this.idempotency.drop(claim);
      else if (spec.shownOnce === true) await this.idempotency.keep(claim, problemToKeep(new Problem('refused', 'this was done, and its answer was shown once', { extra: { reason: 'shown_once' } })));
      else await this.idempotency.keep(claim, { status, headers: { 'content-type': JSON_TYPE, ...headers }, body });
      send(response, status, headers, body);
    } catch (error) {
      if (error instanceof Problem && error.isFinal) await this.idempotency.keep(claim, problemToKeep(error));
      else await this.idempotency.drop(claim);
      throw error;
    }
  }

  async #write(response: Response, request: Visited, answer: Answer, call: Call): Promise<void> {
    if ('stream' in answer) return this.#stream(response, request, answer.stream, call);
    send(response, answer.status, answer.headers ?? {}, textOf(answer.body));
  }

  async #stream(response: Response, request: Visited, stream: Extract<Answer, { stream: unknown }>['stream'], call: Call): Promise<void> {
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-store', 'x-accel-buffering': 'no' });
    response.write('retry: 1000\n\n');
    let cancel = (): void => undefined;
    const beat = (): void => {
      cancel = systemClock.after(BEAT_MS, () => void this.#beat(response, request).then((goesOn) => goesOn && beat()));
    };
    beat();
    try {
      await stream(async ({ id, type, data }) => {
        if (response.write(`id: ${id}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`)) return;
        await Promise.race([once(response, 'drain', { signal: call.signal }).catch(() => undefined), once(response, 'close')]);
      });
    } finally {
      cancel();
      response.end();
    }
  }

  /** A stream lives no longer than the right to it. */
  async #beat(response: Response, request: Visited): Promise<boolean> {
    if (response.writableEnded) return false;
    response.write(': still here\n\n');
    const now = await this.authentication.lookUp(request.headers.authorization ?? '').catch(() => request.principal ?? null);
    if (now !== null && JSON.stringify(now) === JSON.stringify(request.principal)) return true;
    response.end();
    response.destroy();
    return false;
  }
}

const problemToKeep = ({ status, body }: Problem): KeptAnswer => ({ status, headers: { 'content-type': 'application/problem+json; charset=utf-8' }, body: JSON.stringify(body) });

const JSON_TYPE = 'application/json; charset=utf-8';
const textOf = (body: unknown): string => (body === undefined ? '' : JSON.stringify(body));

function send(response: Response, status: number, headers: Readonly<Record<string, string>>, body: string): void {
  if (response.headersSent || response.destroyed) return;
  response.status(status).setHeader('cache-control', 'no-store');
  if (body !== '') response.setHeader('content-type', JSON_TYPE);
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  response.end(body);
}

function bodyOf(spec: Endpoint, request: Visited): Json | undefined {
  if (spec.body === undefined) return undefined;
  const bytes: unknown = request.body;
  if (!Buffer.isBuffer(bytes)) {
    if (request.get('content-type') === undefined || Number(request.get('content-length') ?? '0') > 0 || request.get('transfer-encoding') !== undefined) throw new Problem('unsupported-media-type', WRONG_MEDIA_TYPE);
    throw new Problem('invalid-request', 'a JSON body is missing');
  }
  return jsonOf(bytes, request.get('content-type'));
}

/**
 * What an address doesn't take is refused, not passed over: whoever misspells a filter would be shown everything. One
 * that is open to all may be called with what others append.
 */
export function queryOf(spec: Pick<Endpoint, 'may' | 'query'>, query: Readonly<Record<string, unknown>>): unknown {
  const taken = Object.keys(spec.query.shape);
  const other = spec.may === 'public' ? undefined : Object.keys(query).find((name) => !taken.includes(name));
  if (other !== undefined) throw new Problem('invalid-request', `query: ${JSON.stringify(other.slice(0, 80))} is not taken here; ${taken.length === 0 ? 'nothing is' : `what is: ${taken.join(', ')}`}`);
  return checked(spec.query, query, 'query');
}

function checked<Schema extends z.ZodType>(schema: Schema, value: unknown, where: string): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new Problem('invalid-request', `${where}: ${describeIssues(parsed.error)}`, { extra: { errors: parsed.error.issues.slice(0, 20).map(({ path, message }) => ({ in: where, at: path.join('.'), message })) } });
}
