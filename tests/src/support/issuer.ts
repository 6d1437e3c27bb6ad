import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, SignJWT, type JWTPayload } from 'jose';

export interface Issuer {
  readonly env: Readonly<Record<string, string>>;
  /** A token that opens the door, with what is changed of it; `secret`: signed by HS256 with that text instead. */
  token(claims?: JWTPayload, options?: { issuer?: string; audience?: string; expires?: string; stranger?: boolean; secret?: string }): Promise<string>;
  readonly publicKey: string;
  close(): Promise<void>;
}

/** An OpenID Connect issuer on this machine: one key, served as a JWKS. */
export async function startIssuer(): Promise<Issuer> {
  const [mine, strange] = await Promise.all([generateKeyPair('ES256'), generateKeyPair('ES256')]);
  const jwk = { ...(await exportJWK(mine.publicKey)), kid: 'k1', alg: 'ES256', use: 'sig' };
  const server = createServer((_, response) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ keys: [jwk] })));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    publicKey: JSON.stringify(jwk),
    env: { HOLDFAST_OIDC_ISSUER: url, HOLDFAST_OIDC_AUDIENCE: 'holdfast', HOLDFAST_OIDC_JWKS: `${url}/jwks`, HOLDFAST_OIDC_ALGORITHMS: 'ES256' },
    token: (claims = {}, { issuer = url, audience = 'holdfast', expires = '5m', stranger = false, secret } = {}) =>
      new SignJWT({ holdfast_tenant: 'default', holdfast_roles: ['viewer'], ...claims })
        .setProtectedHeader({ alg: secret === undefined ? 'ES256' : 'HS256', kid: 'k1' })
        .setSubject('jo@example.org')
        .setIssuer(issuer)
        .setAudience(audience)
        .setIssuedAt()
        .setExpirationTime(expires)
        .sign(secret === undefined ? (stranger ? strange.privateKey : mine.privateKey) : new TextEncoder().encode(secret)),
    close: () => new Promise<void>((resolve) => void server.close(() => resolve())),
  };
}
