/** One span, told when it is over: of what it was, never of what was in it. Times are epoch milliseconds. */
export interface SpanFacts {
  readonly trace: string;
  readonly span: string;
  readonly parent: string | null;
  readonly name: string;
  readonly kind: 'internal' | 'server' | 'client' | 'consumer';
  readonly startedAt: number;
  readonly endedAt: number;
  /** Names, numbers and states alone: no arguments, results or words of a tool, an agent or a person. */
  readonly attributes: Readonly<Record<string, string | number | boolean>>;
  /** A word for why it did not go well. */
  readonly failed?: string | undefined;
  /** A span of another trace that this one follows from. */
  readonly link?: { readonly trace: string; readonly span: string } | null | undefined;
}

/** Where spans go. Telling one costs no wait and never fails; what can't be delivered is dropped. */
export interface Tracing {
  span(facts: SpanFacts): void;
  /** Sends what is left, for at most a few seconds. */
  close(): Promise<void>;
}

/**
 * Opens the way to an OTLP/HTTP receiver; null, and nothing is loaded, where none is named.
 * `endpoint`: its base address, such as `http://collector:4318`. `onTrouble`: told when spans can't be delivered, once until
 * they can again.
 */
export async function openTracing(service: string, instance: string, endpoint: string | undefined, onTrouble: (error: string) => void = () => undefined): Promise<Tracing | null> {
  if (endpoint === undefined || endpoint === '') return null;
  const { OtlpTracing } = await import('./otlp.js');
  return new OtlpTracing(`holdfast-${service}`, instance, endpoint, onTrouble);
}
