import { SpanKind, SpanStatusCode, TraceFlags, type HrTime, type SpanContext } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes, type Resource } from '@opentelemetry/resources';
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter, type SpanProcessor } from '@opentelemetry/sdk-trace';
import type { SpanFacts, Tracing } from './tracing.js';

const KINDS: Readonly<Record<SpanFacts['kind'], SpanKind>> = { internal: SpanKind.INTERNAL, server: SpanKind.SERVER, client: SpanKind.CLIENT, consumer: SpanKind.CONSUMER };
/** Beyond these spans are dropped: telemetry never holds up the work, nor fills the memory. */
const WAITING_MAX = 20_000;
const SEND_EVERY_MS = 1000;
const CLOSE_WITHIN_MS = 3000;

const hrTime = (ms: number): HrTime => [Math.floor(ms / 1000), Math.round((ms % 1000) * 1_000_000)];
const contextOf = (traceId: string, spanId: string): SpanContext => ({ traceId, spanId, traceFlags: TraceFlags.SAMPLED });

/**
 * Spans to an OTLP/HTTP receiver by OpenTelemetry's own batching and exporter. Its tracer is not used: names of spans
 * here follow from the log, and its tracer makes them up.
 */
export class OtlpTracing implements Tracing {
  readonly #resource: Resource;
  readonly #processor: SpanProcessor;

  constructor(service: string, instance: string, endpoint: string, onTrouble: (error: string) => void) {
    this.#resource = resourceFromAttributes({ 'service.name': service, 'service.namespace': 'holdfast', 'service.instance.id': instance });
    const exporter = telling(new OTLPTraceExporter({ url: `${endpoint.replace(/\/+$/, '')}/v1/traces` }), onTrouble);
    this.#processor = new BatchSpanProcessor({ exporter, maxQueueSize: WAITING_MAX, maxExportBatchSize: 512, scheduledDelayMillis: SEND_EVERY_MS, exportTimeoutMillis: 10_000 });
  }

  span(facts: SpanFacts): void {
    this.#processor.onEnd(this.#readable(facts));
  }

  async close(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, CLOSE_WITHIN_MS)));
    await Promise.race([this.#processor.shutdown().catch(() => undefined), late]);
    clearTimeout(timer);
  }

  #readable({ trace, span, parent, name, kind, startedAt, endedAt, attributes, failed, link }: SpanFacts): ReadableSpan {
    const end = Math.max(startedAt, endedAt);
    return {
      name,
      kind: KINDS[kind],
      spanContext: () => contextOf(trace, span),
      ...(parent === null ? {} : { parentSpanContext: contextOf(trace, parent) }),
      startTime: hrTime(startedAt),
      endTime: hrTime(end),
      duration: hrTime(end - startedAt),
      status: failed === undefined ? { code: SpanStatusCode.UNSET } : { code: SpanStatusCode.ERROR, message: failed },
      attributes,
      links: link === null || link === undefined ? [] : [{ context: contextOf(link.trace, link.span) }],
      events: [],
      ended: true,
      resource: this.#resource,
      instrumentationScope: { name: 'holdfast' },
      droppedAttributesCount: 0,
      droppedEventsCount: 0,
      droppedLinksCount: 0,
    };
  }
}

/** Says when spans can't be delivered: once, until they can again. */
function telling(exporter: SpanExporter, onTrouble: (error: string) => void): SpanExporter {
  let told = false;
  return {
    export: (spans, then) =>
      exporter.export(spans, (result) => {
        const failed = result.error !== undefined;
        if (failed && !told) onTrouble(result.error?.message ?? 'unknown');
        told = failed;
        then(result);
      }),
    shutdown: () => exporter.shutdown(),
    ...(exporter.forceFlush === undefined ? {} : { forceFlush: () => exporter.forceFlush?.() ?? Promise.resolve() }),
  };
}
