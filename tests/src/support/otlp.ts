import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface ReceivedSpan {
  readonly service: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string | null;
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Readonly<Record<string, unknown>>;
}

interface Attribute {
  readonly key: string;
  readonly value: Readonly<Record<string, unknown>>;
}
interface Body {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] };
    readonly scopeSpans: readonly { readonly spans: readonly { readonly traceId: string; readonly spanId: string; readonly parentSpanId?: string; readonly name: string; readonly startTimeUnixNano: string; readonly endTimeUnixNano: string; readonly attributes: readonly Attribute[] }[] }[];
  }[];
}

const plain = (attributes: readonly Attribute[]): Record<string, unknown> => Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
const ms = (nanos: string): number => Number(BigInt(nanos) / 1_000_000n);

/** A receiver of OTLP over HTTP, in JSON, that keeps all that it is sent. */
export async function startOtlpReceiver(): Promise<{ readonly url: string; readonly bodies: string[]; spans(trace?: string): ReceivedSpan[]; close(): Promise<void> }> {
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const found = request.method === 'POST' && request.url === '/v1/traces';
      if (found) bodies.push(Buffer.concat(chunks).toString());
      response.writeHead(found ? 200 : 404, { 'content-type': 'application/json' }).end('{}');
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    bodies,
    spans: (trace) =>
      bodies
        .flatMap((body) => (JSON.parse(body) as Body).resourceSpans)
        .flatMap(({ resource, scopeSpans }) =>
          scopeSpans.flatMap(({ spans }) =>
            spans.map(({ traceId, spanId, parentSpanId, name, startTimeUnixNano, endTimeUnixNano, attributes }) => ({
              ...{ service: String(plain(resource.attributes)['service.name']), traceId, spanId, name },
              parentSpanId: parentSpanId === undefined || parentSpanId === '' ? null : parentSpanId,
              ...{ startMs: ms(startTimeUnixNano), endMs: ms(endTimeUnixNano), attributes: plain(attributes) },
            })),
          ),
        )
        .filter((span) => trace === undefined || span.traceId === trace),
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
