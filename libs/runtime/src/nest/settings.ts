import { z } from 'zod';
import { given } from '../environment.js';

const port = z.coerce.number().int().min(0).max(65_535);

/** What every service reads from its environment. */
export const ServiceSettings = z.object({
  HOLDFAST_BROKERS: z.string().min(1).describe('addresses of Kafka, host:port, with commas between'),
  HOLDFAST_DATABASE_URL: z.url().describe('Server address without a database name: each service has a database of its own on it'),
  HOLDFAST_PARTITIONS: z.coerce.number().int().min(1).max(1000).default(12).describe('number of lanes: that of every topic, for the life of the cluster'),
  HOLDFAST_REPLICATION: z.coerce.number().int().min(1).max(9).default(1).describe('copies of topics that a start has to make; production wants 3'),
  HOLDFAST_INSTANCE: z.string().min(1).max(100).optional().describe('name in logs, groups and metrics; made up when absent'),
  HOLDFAST_SESSION_TIMEOUT_MS: z.coerce.number().int().min(500).max(300_000).default(6000).describe('Milliseconds after which a silent instance loses its lanes'),
  HOLDFAST_OVERDUE_PER_SECOND: z.coerce.number().int().min(1).max(100_000).default(200).describe('Timers a second that an instance takes after an outage, beside what comes due meanwhile'),
  HOLDFAST_HEALTH_PORT: port.optional().describe('Serves /healthz, /readyz and /metrics there; none when absent'),
  HOLDFAST_OTLP: z.url().optional().describe('Base address of an OTLP/HTTP receiver of traces, such as http://collector:4318; none are kept when absent'),
  HOLDFAST_UNREADY_AFTER_MS: z.coerce.number().int().min(1000).max(3_600_000).default(10_000).describe('How long something may stand still before an instance says that it is not ready, milliseconds'),
  HOLDFAST_REBUILD: z.enum(['refuse', 'auto']).default('refuse').describe('What a start does on a database that is new or older than the topics: refuse, or rebuild it first'),
  HOLDFAST_LOG_LEVEL: z.enum(['debug', 'info', 'warn', 'error', 'silent']).default('info').describe('what is logged, as JSON lines on stdout'),
});
export type ServiceSettings = z.infer<typeof ServiceSettings>;

/** Reads settings; the error names each variable and what is wrong with it. */
export function readSettings(environment: NodeJS.ProcessEnv): ServiceSettings {
  const parsed = ServiceSettings.safeParse(given(environment));
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`);
  throw new Error(`settings are wrong or missing: ${problems.join('; ')}`);
}

/** The URL of a service's own database on the server. */
export function serviceDatabaseUrl(server: string, service: string): string {
  const url = new URL(server);
  url.pathname = `/holdfast_${service.replaceAll('-', '_')}`;
  return url.toString();
}
