import { type CanActivate, type ExecutionContext, Injectable } from '@nestjs/common';
import type { Request, Response } from 'express';
import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';
import { KEY_PREFIX, type Keys } from '../access/keys.js';
import { IssuerUnreachable, type Oidc } from '../access/oidc.js';
import { holds, type Principal } from '../domain/access.js';
import { endpointOf, type Visited } from './endpoint.js';
import { Problem } from './problem.js';

export interface Rates {
  /** Requests of one key or token subject in a minute, for each instance of the gateway. */
  readonly perMinute: number;
  /** Refused credentials from one address in a minute. */
  readonly refusedPerMinute: number;
}

const MINUTE_S = 60;
const BEARER = /^Bearer ([\x21-\x7e]{1,8192})$/i;

/** Says who asks, or that nobody known does. */
export class Authentication {
  readonly #refused: RateLimiterMemory;

  constructor(
    private readonly keys: Keys,
    private readonly oidc: Oidc | null,
    rates: Rates,
  ) {
    this.#refused = new RateLimiterMemory({ points: rates.refusedPerMinute, duration: MINUTE_S });
  }

  /** @throws Problem when the credentials are missing or good for nothing */
  async principalOf(request: Request): Promise<Principal> {
    const header = request.headers.authorization;
    if (header === undefined) throw unauthenticated('send "Authorization: Bearer <API key or token>"');
    const address = request.socket.remoteAddress ?? 'unknown';
    await this.mayTry(address);
    const principal = await this.lookUp(header);
    if (principal !== null) return principal;
    await this.refused(address);
    throw unauthenticated('the key or token is unknown, expired or revoked');
  }

  /** @throws Problem when too much of what came from there was refused of late */
  async mayTry(address: string): Promise<void> {
    const tried = await this.#refused.get(address);
    if (tried !== null && tried.remainingPoints <= 0) throw tooMany(tried);
  }

  /** What came from there opened nothing. */
  async refused(address: string): Promise<void> {
    await this.#refused.penalty(address);
  }

  /** Null when it opens nothing (any more). @throws Problem when nobody can say */
  async lookUp(header: string): Promise<Principal | null> {
    const credentials = BEARER.exec(header)?.[1];
    if (credentials === undefined) return null;
    if (credentials.startsWith(KEY_PREFIX)) return this.keys.principalOf(credentials);
    try {
      return (await this.oidc?.principalOf(credentials)) ?? null;
    } catch (error) {
      if (error instanceof IssuerUnreachable) throw new Problem('unavailable', error.message, { cause: error, headers: { 'retry-after': '5' } });
      throw error;
    }
  }
}

const unauthenticated = (detail: string): Problem => new Problem('unauthenticated', detail, { headers: { 'www-authenticate': 'Bearer realm="holdfast"' } });
const tooMany = ({ msBeforeNext }: RateLimiterRes): Problem => {
  const seconds = Math.max(1, Math.ceil(msBeforeNext / 1000));
  return new Problem('rate-limited', `try again in ${seconds} s`, { headers: { 'retry-after': String(seconds) } });
};

/** Nothing is served that is no declared endpoint, to nobody who may not. */
@Injectable()
export class AccessGuard implements CanActivate {
  readonly #rate: RateLimiterMemory;

  constructor(
    private readonly authentication: Authentication,
    rates: Rates,
  ) {
    this.#rate = new RateLimiterMemory({ points: rates.perMinute, duration: MINUTE_S });
  }

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const spec = endpointOf(context.getHandler());
    if (spec === undefined) throw new Problem('not-found', 'there is nothing at this address');
    if (spec.may === 'public') return true;
    const request = context.switchToHttp().getRequest<Visited>();
    const principal = await this.authentication.principalOf(request);
    await this.#count(principal, context.switchToHttp().getResponse<Response>());
    if (!holds(principal, spec.may)) throw new Problem('forbidden', `this needs the role "${spec.may}"; ${principal.name} has ${principal.roles.length === 0 ? 'none' : principal.roles.map((role) => `"${role}"`).join(', ')}`);
    request.principal = principal;
    return true;
  }

  async #count({ tenant, id }: Principal, response: Response): Promise<void> {
    try {
      const { remainingPoints, msBeforeNext } = await this.#rate.consume(JSON.stringify([tenant, id]));
      response.setHeader('ratelimit-remaining', String(remainingPoints));
      response.setHeader('ratelimit-reset', String(Math.ceil(msBeforeNext / 1000)));
    } catch (error) {
      if (error instanceof RateLimiterRes) throw tooMany(error);
      throw error;
    }
  }
}
