import { describeIssues } from '@holdfast/protocol';
import { given } from '@holdfast/runtime';
import { z } from 'zod';

const Settings = z
  .object({ HOLDFAST_WEBHOOK_URL: z.url({ protocol: /^https?$/ }).optional(), HOLDFAST_WEBHOOK_SECRET: z.string().min(1).optional() })
  .refine(({ HOLDFAST_WEBHOOK_URL: url, HOLDFAST_WEBHOOK_SECRET: secret }) => (url === undefined) === (secret === undefined), 'HOLDFAST_WEBHOOK_URL and HOLDFAST_WEBHOOK_SECRET go together');

/** Where notices go, if anywhere. */
export interface Receiver {
  readonly url: string;
  readonly secret: string;
}

/** @throws Error that names the variable and what is wrong with it */
export function readReceiver(environment: NodeJS.ProcessEnv): Receiver | null {
  const parsed = Settings.safeParse(given(environment));
  if (!parsed.success) throw new Error(`settings are wrong or missing: ${describeIssues(parsed.error)}`);
  const { HOLDFAST_WEBHOOK_URL: url, HOLDFAST_WEBHOOK_SECRET: secret } = parsed.data;
  return url === undefined || secret === undefined ? null : { url, secret };
}
