import { Tenant } from '@holdfast/protocol';
import { createRemoteJWKSet, errors, jwtVerify } from 'jose';
import { z } from 'zod';
import type { Principal } from '../domain/access.js';

export const OidcSettings = z.object({
  issuer: z.url(),
  audience: z.string().min(1),
  jwks: z.url(),
  algorithms: z.array(z.enum(['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA'])).min(1),
});
export type OidcSettings = z.infer<typeof OidcSettings>;

/** Claims that say what somebody may do here. Without a tenant and a role nobody may anything. */
const Claims = z.object({
  sub: z.string().min(1).max(200),
  exp: z.number(),
  holdfast_tenant: Tenant,
  holdfast_roles: z.array(z.string().min(1).max(100)).max(50),
  holdfast_tools: z.array(z.string().min(1).max(100)).max(1000).optional(),
  holdfast_amount_max: z.number().nonnegative().optional(),
});

const SKEW_S = 5;

/** Nobody can say whether a token is good: the issuer's keys can't be had. */
export class IssuerUnreachable extends Error {
  override readonly name = 'IssuerUnreachable';
}

/** Checks tokens of one OpenID Connect issuer. Its keys are fetched when a token names one that isn't known, and cached. */
export class Oidc {
  readonly #keys: ReturnType<typeof createRemoteJWKSet>;

  constructor(private readonly settings: OidcSettings) {
    this.#keys = createRemoteJWKSet(new URL(settings.jwks), { timeoutDuration: 5000 });
  }

  /** Null when the token opens nothing. @throws IssuerUnreachable */
  async principalOf(token: string): Promise<Principal | null> {
    const { issuer, audience, algorithms } = this.settings;
    try {
      const { payload } = await jwtVerify(token, this.#keys, { issuer, audience, algorithms: [...algorithms], requiredClaims: ['exp', 'sub'], clockTolerance: SKEW_S });
      const claims = Claims.safeParse(payload);
      if (!claims.success) return null;
      // Four eyes are told apart by the name, so it is the subject: display names can be changed.
      const { sub, holdfast_tenant: tenant, holdfast_roles: roles, holdfast_tools: tools, holdfast_amount_max: amountMax } = claims.data;
      // Not the display name, which people may change: four eyes are told apart by it.
      return { id: sub, name: sub, tenant, roles, tools: tools ?? null, amountMax: amountMax ?? null };
    } catch (error) {
      // What the issuer's keys say against it is no; what kept us from them is nobody's word.
      if (error instanceof errors.JWKSTimeout || !(error instanceof errors.JOSEError) || error.code === 'ERR_JOSE_GENERIC') throw new IssuerUnreachable('the issuer’s keys can’t be had', { cause: error });
      return null;
    }
  }
}
