export { traced } from './log.js';
export { listMetrics, type ListedMetric } from './listed.js';
export { LoopTracer } from './loop-tracer.js';
export { gauge, LoopMetrics, loopGauges, openRegistry, poolGauge, type LoopSources, type PoolUse } from './metrics.js';
export { together } from './observers.js';
export { servePages, type Exposed, type Health } from './pages.js';
export { WorkerMetrics, workerGauges } from './worker-metrics.js';
export { openTracing, type SpanFacts, type Tracing } from './tracing.js';
export { Vitals, type Lag, type VitalsParts } from './vitals.js';
