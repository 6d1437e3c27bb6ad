import { type ArgumentsHost, Catch, type ExceptionFilter, HttpException } from '@nestjs/common';
import type { Request, Response } from 'express';
import type { ServiceLog } from '@holdfast/runtime/nest';
import { WRONG_MEDIA_TYPE } from './body.js';
import type { Endpoint } from './endpoint.js';
import { Problem } from './problem.js';

/** Turns whatever was thrown into a problem; what is no answer of ours is logged, and tells the asker nothing. */
@Catch()
export class ProblemFilter implements ExceptionFilter {
  readonly #paths: readonly { readonly pattern: RegExp; readonly method: string }[];

  constructor(
    private readonly log: ServiceLog,
    endpoints: readonly Endpoint[],
  ) {
    this.#paths = endpoints.map(({ path, method }) => ({ pattern: new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, '[^/]+')}/?$`), method: method.toUpperCase() }));
  }

  catch(error: unknown, host: ArgumentsHost): void {
    const request = host.switchToHttp().getRequest<Request>();
    const response = host.switchToHttp().getResponse<Response>();
    const problem = this.problemOf(error, request);
    if (response.headersSent) {
      response.destroy();
      return;
    }
    sendProblem(response, problem);
  }

  problemOf(error: unknown, request: Pick<Request, 'path' | 'method'>): Problem {
    if (error instanceof Problem) return error;
    const known = transportProblem(error);
    if (known !== null) return known;
    if (error instanceof HttpException) {
      if (error.getStatus() === 404) return this.#missing(request);
      if (error.getStatus() < 500) return new Problem('invalid-request', error.message);
    }
    this.log.error({ method: request.method, path: request.path, error: error instanceof Error ? error.message : String(error), stack: error instanceof Error ? error.stack : undefined }, 'a request failed');
    if (isOutage(error)) return new Problem('unavailable', 'the gateway’s database or broker can’t be reached; try again', { headers: { 'retry-after': '2' } });
    return new Problem('internal', 'the gateway failed to answer; its log says why');
  }

  #missing({ path, method }: Pick<Request, 'path' | 'method'>): Problem {
    const methods = [...new Set(this.#paths.filter(({ pattern }) => pattern.test(path)).map((each) => each.method))];
    if (methods.length === 0 || methods.includes(method)) return new Problem('not-found', 'there is nothing at this address');
    return new Problem('method-not-allowed', `${method} is not taken here`, { headers: { allow: methods.join(', ') } });
  }
}

export function sendProblem(response: Response, problem: Problem): void {
  for (const [name, value] of Object.entries(problem.headers)) response.setHeader(name, value);
  response.status(problem.status).type('application/problem+json').send(JSON.stringify(problem.body));
}

/** What express and its body parser throw says its kind in a member. */
function transportProblem(error: unknown): Problem | null {
  if (typeof error !== 'object' || error === null) return null;
  const { type } = error as { type?: unknown };
  const status: unknown = error instanceof HttpException ? error.getStatus() : (error as { status?: unknown }).status;
  if (status === 413) return new Problem('too-large', 'the body is too large; store large values as artifacts and pass the reference');
  if (status === 415) return new Problem('unsupported-media-type', WRONG_MEDIA_TYPE);
  if ((status === 400 && !(error instanceof HttpException)) || error instanceof URIError) return new Problem('invalid-request', type === 'request.aborted' ? 'the request broke off' : 'the request can’t be read');
  return null;
}

const OUTAGES = new Set(['ECONNREFUSED', 'ECONNRESET', 'ETIMEDOUT', 'EPIPE', '57P01', '57P03', '57014', '53300', '08006', '08003', '55P03']);

function isOutage(error: unknown): boolean {
  for (let at: unknown = error, depth = 0; typeof at === 'object' && at !== null && depth < 5; at = (at as { cause?: unknown }).cause, depth += 1) {
    const { code, name, message } = at as { code?: unknown; name?: unknown; message?: unknown };
    if (typeof code === 'string' && OUTAGES.has(code)) return true;
    if (typeof name === 'string' && name.startsWith('KafkaJS')) return true;
    if (typeof message === 'string' && /timeout exceeded when trying to connect|Connection terminated/i.test(message)) return true;
  }
  return false;
}
