import { z } from 'zod';
import { createDocument, type ZodOpenApiOperationObject, type ZodOpenApiPathsObject, type ZodOpenApiResponseObject } from 'zod-openapi';
import type { Endpoint } from './endpoint.js';
import { PROBLEMS, type ProblemCode } from './problem.js';

const ProblemBody = z
  .looseObject({ type: z.string(), title: z.string(), status: z.number().int(), detail: z.string() })
  .meta({ id: 'Problem', description: 'RFC 9457. `type` names the kind; `reason`, where it is there, is the owning service’s own word.' });

const IdempotencyKey = z.string().regex(/^[\x21-\x7e]{1,200}$/).optional().meta({ description: 'The same key and request again gets the same answer, for a day; another request gets 422, one that is being answered 409.' });

/** Problems that an address may answer with, by its nature. */
export function problemsOf(spec: Endpoint): ProblemCode[] {
  const codes: ProblemCode[] = ['unavailable', 'internal', ...spec.problems];
  if (spec.may !== 'public') codes.push('unauthenticated', 'forbidden', 'rate-limited');
  if (spec.may !== 'public' || spec.path.includes('{')) codes.push('invalid-request');
  if (spec.path.includes('{')) codes.push('not-found');
  if (spec.method !== 'get' && spec.may !== 'public') codes.push('idempotency-key-reused', 'idempotency-in-progress');
  if (spec.body !== undefined) codes.push('invalid-request', 'too-large', 'unsupported-media-type');
  return [...new Set(codes)];
}

/** The description of the API: OpenAPI 3.1, from the same schemas by which requests are checked. */
export function describe(endpoints: readonly Endpoint[], version: string): object {
  const paths: Record<string, Record<string, ZodOpenApiOperationObject>> = {};
  for (const spec of endpoints) (paths[spec.path] ??= {})[spec.method] = operation(spec);
  return createDocument({
    openapi: '3.1.0',
    info: { title: 'Holdfast', version, description: 'Runs of AI agents, their effects, and what people decide about them. Errors are RFC 9457 problems. Times are RFC 3339, UTC.', license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
    servers: [{ url: '/' }],
    tags: [...new Set(endpoints.map(({ tag }) => tag))].map((name) => ({ name })),
    security: [{ bearer: [] }],
    components: { securitySchemes: { bearer: { type: 'http', scheme: 'bearer', description: 'an API key (`holdfast keys create`), or a token of the configured OpenID Connect issuer' } } },
    paths: paths as ZodOpenApiPathsObject,
  });
}

function operation(spec: Endpoint): ZodOpenApiOperationObject {
  return {
    operationId: spec.id,
    tags: [spec.tag],
    summary: spec.summary,
    description: [spec.description, spec.may === 'public' ? 'Open to all.' : `Takes the role \`${spec.may}\`.`].filter((text) => text !== undefined).join(' '),
    ...(spec.may === 'public' ? { security: [] } : {}),
    requestParams: {
      path: spec.params,
      query: spec.query,
      ...(spec.method === 'get' || spec.may === 'public' ? {} : { header: z.object({ 'Idempotency-Key': IdempotencyKey }) }),
      ...(spec.headers === undefined ? {} : { header: z.object(Object.fromEntries(Object.entries(spec.headers).map(([name, description]) => [name, z.string().optional().meta({ description })]))) }),
    },
    ...(spec.body === undefined ? {} : { requestBody: { required: true, content: { 'application/json': { schema: spec.body } } } }),
    responses: { ...Object.fromEntries(Object.entries(spec.answers).map(([status, answer]) => [status, { description: answer.description, ...contentOf(answer) }])), ...problemResponses(problemsOf(spec)) } as ZodOpenApiOperationObject['responses'],
  };
}

function contentOf({ schema, events }: Endpoint['answers'][number]): Pick<ZodOpenApiResponseObject, 'content'> {
  if (schema === undefined) return {};
  return { content: { 'application/json': { schema }, ...(events === true ? { 'text/event-stream': { schema: z.string() } } : {}) } };
}

/** Several problems may share a status. */
function problemResponses(codes: readonly ProblemCode[]): Record<string, ZodOpenApiResponseObject> {
  const byStatus = new Map<number, string[]>();
  for (const code of codes) byStatus.set(PROBLEMS[code].status, [...(byStatus.get(PROBLEMS[code].status) ?? []), `\`${code}\`: ${PROBLEMS[code].title}`]);
  return Object.fromEntries([...byStatus].sort(([a], [b]) => a - b).map(([status, descriptions]) => [String(status), { description: descriptions.join('; '), content: { 'application/problem+json': { schema: ProblemBody } } }]));
}
