import { VALUE_BYTES_MAX } from '@holdfast/protocol';
import { given } from '@holdfast/runtime';
import { ServiceSettings } from '@holdfast/runtime/nest';
import { z } from 'zod';
import { OidcSettings } from './access/oidc.js';

const whole = (least: number, most: number, standard: number): z.ZodType<number> => z.coerce.number().int().min(least).max(most).default(standard);

/** What the gateway reads from its environment besides what every service does. */
export const GatewaySettings = ServiceSettings.extend({
  HOLDFAST_HTTP_HOST: z.string().min(1).default('127.0.0.1').describe('address to listen on'),
  // The port that `holdfast up` serves too, beside those of a developer's own servers; tests take 0, to stand side by side.
  HOLDFAST_HTTP_PORT: whole(0, 65_535, 18_080).describe('port to listen on; 0: any that is free'),
  HOLDFAST_HTTP_BODY_MAX: whole(1024, 16 * 1024 * 1024, VALUE_BYTES_MAX + 16 * 1024).describe('Largest body of a request, bytes. What is put on a topic is at most 256 KiB'),
  HOLDFAST_HTTP_RATE: whole(1, 10_000_000, 6000).describe('Requests of one key in a minute, for each instance'),
  HOLDFAST_HTTP_REFUSED_RATE: whole(1, 10_000_000, 100).describe('Refused credentials from one address in a minute'),
  HOLDFAST_OIDC_ISSUER: z.url().optional().describe('who signs the tokens of people; goes with the next two'),
  HOLDFAST_OIDC_AUDIENCE: z.string().min(1).optional().describe('for whom tokens have to be made out'),
  HOLDFAST_OIDC_JWKS: z.url().optional().describe('where the issuer’s keys are'),
  HOLDFAST_OIDC_ALGORITHMS: z.string().default('RS256,ES256').describe('algorithms that are taken, with commas between'),
  HOLDFAST_WEBHOOK_KEY: z.string().min(32).optional().describe('Makes the secrets by which receivers know webhooks: 32 bytes or more, in base64 or any text. None are sent without it'),
  HOLDFAST_WEBHOOK_KEEP_DELIVERED_DAYS: whole(1, 3650, 7).describe('How long a webhook’s delivery is listed after it was delivered, days'),
  HOLDFAST_WEBHOOK_KEEP_DEAD_DAYS: whole(1, 3650, 30).describe('How long one that was given up is listed, and may be posted again, days'),
  HOLDFAST_TRACE_URL: z.string().max(2000).regex(/^https?:\/\/.*\{trace\}/, 'is no http address with {trace} in it').optional().describe('Where a trace is shown, with `{trace}` for its id'),
  HOLDFAST_HOUSE_TENANT: z.string().min(1).default('default').describe('Tenant whose admins and operators may hold tools and agents still: they are shared by all tenants'),
  HOLDFAST_CONSOLE: z.string().min(1).optional().describe('Folder of the console’s built pages'),
});
export type GatewaySettings = z.infer<typeof GatewaySettings> & { readonly oidc: OidcSettings | null };

/** Reads settings; the error names each variable and what is wrong with it. */
export function readGatewaySettings(environment: NodeJS.ProcessEnv): GatewaySettings {
  const parsed = GatewaySettings.safeParse(given(environment));
  if (!parsed.success) throw new Error(`settings are wrong or missing: ${parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; ')}`);
  const { HOLDFAST_OIDC_ISSUER: issuer, HOLDFAST_OIDC_AUDIENCE: audience, HOLDFAST_OIDC_JWKS: jwks, HOLDFAST_OIDC_ALGORITHMS: algorithms } = parsed.data;
  if ((issuer === undefined) !== (audience === undefined) || (issuer === undefined) !== (jwks === undefined)) {
    throw new Error('settings are wrong or missing: HOLDFAST_OIDC_ISSUER, HOLDFAST_OIDC_AUDIENCE and HOLDFAST_OIDC_JWKS go together');
  }
  return { ...parsed.data, oidc: issuer === undefined ? null : OidcSettings.parse({ issuer, audience, jwks, algorithms: algorithms.split(',').map((each) => each.trim()) }) };
}
