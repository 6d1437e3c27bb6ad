import { applyDecorators, createParamDecorator, RequestMapping, RequestMethod, Res, SetMetadata, type ExecutionContext } from '@nestjs/common';
import type { Request } from 'express';
import { z } from 'zod';
import type { Principal, Role } from '../domain/access.js';
import type { ProblemCode } from './problem.js';

const nothing = z.object({});
type Nothing = typeof nothing;

export interface EndpointAnswer {
  readonly description: string;
  /** Absent: no content. */
  readonly schema?: z.ZodType;
  /** Besides JSON: a stream of events, where it is asked for. */
  readonly events?: boolean;
}

/** One address of the API: all that the router, the guard, the description and the tests need to know of it. */
export interface Endpoint<Params extends z.ZodObject = z.ZodObject, Query extends z.ZodObject = z.ZodObject, Body extends z.ZodType = z.ZodType> {
  readonly id: string;
  readonly method: 'get' | 'post' | 'delete';
  /** With `{name}` for parameters. */
  readonly path: string;
  readonly tag: string;
  readonly summary: string;
  readonly description?: string | undefined;
  /** Role that it takes; `public`: asks for no credentials. */
  readonly may: Role | 'public';
  readonly params: Params;
  readonly query: Query;
  /** Headers that change the answer, with what they do. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Absent: takes none. */
  readonly body: Body | undefined;
  readonly answers: Readonly<Record<number, EndpointAnswer>>;
  /** Problems that are its own, besides those that any address has. */
  readonly problems: readonly ProblemCode[];
  /** Its answer holds a secret: it is not kept for repetitions of the request. */
  readonly shownOnce?: boolean | undefined;
  /** What an audit event calls it, where it is a privileged act. */
  readonly act?: string | undefined;
}

type Optional<E extends Endpoint> = Partial<Pick<E, 'params' | 'query' | 'body' | 'problems'>>;

/** Declares an address. */
export function endpoint<Params extends z.ZodObject = Nothing, Query extends z.ZodObject = Nothing, Body extends z.ZodType = z.ZodUndefined>(
  spec: Omit<Endpoint<Params, Query, Body>, 'params' | 'query' | 'body' | 'problems'> & Optional<Endpoint<Params, Query, Body>>,
): Endpoint<Params, Query, Body> {
  return { ...spec, params: spec.params ?? (nothing as unknown as Params), query: spec.query ?? (nothing as unknown as Query), body: spec.body, problems: spec.problems ?? [] };
}

/** A checked request. */
export interface Call<Params = unknown, Query = unknown, Body = unknown> {
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  readonly principal: Principal;
  /** Names what is asked for: the same again for the same Idempotency-Key, so that a repetition is known as one. */
  readonly command: string;
  header(name: string): string | undefined;
  /** Where the request came from. */
  readonly address: string;
  /** Aborted when the asker has gone, or the gateway stops. */
  readonly signal: AbortSignal;
}
export type CallOf<E> = E extends Endpoint<infer Params, infer Query, infer Body> ? Call<z.output<Params>, z.output<Query>, z.output<Body>> : never;

/** Writes one event of a stream. Resolves when there is room for more. */
export type SendEvent = (event: { readonly id: string; readonly type: string; readonly data: unknown }) => Promise<void>;

export type Answer =
  | { readonly status: number; readonly body?: unknown; readonly headers?: Readonly<Record<string, string>> }
  /** Ends when the stream is over. */
  | { readonly stream: (send: SendEvent) => Promise<void> };

export const ok = (body: unknown, headers: Readonly<Record<string, string>> = {}): Answer => ({ status: 200, body, headers });

const ENDPOINT = 'holdfast:endpoint';
const CALL = Symbol('call');

/** What the guard and the interceptor leave on a request for the handler. */
export interface Visited extends Request {
  principal?: Principal;
  [CALL]?: Call;
}

export const giveCall = (request: Visited, call: Call): void => void (request[CALL] = call);
export const endpointOf = (handler: object): Endpoint | undefined => Reflect.getMetadata(ENDPOINT, handler) as Endpoint | undefined;

const TheCall = createParamDecorator((_: unknown, context: ExecutionContext) => context.switchToHttp().getRequest<Visited>()[CALL]);
const METHODS = { get: RequestMethod.GET, post: RequestMethod.POST, delete: RequestMethod.DELETE } as const;

/** Makes a method the handler of an address: it gets the checked call, and returns the answer. */
export function Serves(spec: Endpoint): MethodDecorator {
  return applyDecorators(
    RequestMapping({ method: METHODS[spec.method], path: spec.path.replaceAll(/\{(\w+)\}/g, ':$1') }),
    SetMetadata(ENDPOINT, spec),
    (target: object, name: string | symbol | undefined) => {
      TheCall()(target, name, 0);
      // Says to Nest that the answer is written by the interceptor.
      Res()(target, name, 1);
    },
  );
}
