import { systemClock } from '@holdfast/runtime';
import { gauge, openRegistry, poolGauge, type PoolUse } from '@holdfast/runtime/telemetry';
import { Gauge, type Registry } from 'prom-client';
import { FIGURES, METRICS_WINDOW_MS } from './domain/figure-list.js';
import { figuresOf, type Figures } from './domain/figures.js';
import type { FigureRows } from './views/figure-rows.js';

/** Beyond so many tenants the rest is left out, so that no page grows without end. */
const TENANTS_MAX = 500;
/** Figures are read at most so often, whoever scrapes. Milliseconds. */
const READ_EVERY_MS = 2000;

type Sample = readonly [name: string, value: number | null, labels?: Readonly<Record<string, string>>];

/** One tenant's figures as samples; what has no value has no sample. */
export function samplesOf(figures: Figures, duplicates: number): Sample[] {
  const seconds = (ms: number | null): number | null => (ms === null ? null : ms / 1000);
  const { recoveryMs, unknowns, compensationBacklog: backlog } = figures;
  return [
    ['holdfast_recovery_seconds', seconds(recoveryMs.p50), { quantile: '0.5' }],
    ['holdfast_recovery_seconds', seconds(recoveryMs.p95), { quantile: '0.95' }],
    ['holdfast_recovery_seconds', seconds(recoveryMs.max), { quantile: '1' }],
    ['holdfast_recoveries', recoveryMs.count],
    ['holdfast_accepted_state_loss_events', figures.acceptedStateLoss],
    ['holdfast_duplicate_effects_ratio', figures.duplicateEffectRate],
    ['holdfast_duplicate_effects', duplicates],
    ['holdfast_unknown_outcomes', unknowns.open],
    ['holdfast_unknown_outcome_oldest_seconds', seconds(unknowns.oldestMs) ?? 0],
    ['holdfast_successful_resumes_ratio', figures.successfulResumes],
    ['holdfast_compensation_backlog', backlog.open],
    ['holdfast_compensation_backlog_oldest_seconds', seconds(backlog.oldestMs) ?? 0],
    ['holdfast_compensation_failures', backlog.failed],
    ['holdfast_compensations_escalated', backlog.escalated],
    ['holdfast_stale_rejections', figures.staleRejections],
    ['holdfast_verified_outcomes_ratio', figures.verifiedOutcomes],
  ];
}

export interface GatewaySources {
  readonly instance: string;
  readonly rows: FigureRows;
  readonly pool: () => PoolUse;
  readonly ready: () => boolean;
  readonly silentMs: () => number;
  readonly apart: () => number;
}

/** The gateway's own registry: the reliability figures of each tenant, and how it fares itself. */
export function gatewayRegistry({ instance, rows, pool, ready, silentMs, apart }: GatewaySources): Registry {
  const registry = openRegistry('gateway', instance);
  poolGauge(registry, pool);
  gauge(registry, 'holdfast_ready', '1 where /readyz says so', () => (ready() ? 1 : 0));
  gauge(registry, 'holdfast_heartbeat_age_seconds', 'How long the broker has not counted this instance in', () => silentMs() / 1000);
  gauge(registry, 'holdfast_records_set_apart', 'How often a record that the database never takes was passed over, by one of its readers, since this instance began: see the dead letters of the reason not_storable', apart);
  let read: { readonly at: number; readonly samples: Promise<readonly Sample[]> } | null = null;
  const samples = (): Promise<readonly Sample[]> => {
    const now = systemClock.now();
    if (read === null || now - read.at > READ_EVERY_MS) read = { at: now, samples: readAll(rows, now) };
    return read.samples;
  };
  for (const { name, help } of FIGURES.flatMap(({ metrics }) => metrics)) {
    new Gauge({
      ...{ name, help, registers: [registry], labelNames: name === 'holdfast_recovery_seconds' ? ['tenant', 'quantile'] : ['tenant'] },
      async collect() {
        const all = await samples();
        this.reset();
        for (const [of, value, labels] of all) if (of === name && value !== null) this.set({ ...labels }, value);
      },
    });
  }
  return registry;
}

async function readAll(rows: FigureRows, now: number): Promise<readonly Sample[]> {
  const samples: Sample[] = [];
  for (const tenant of await rows.tenants(TENANTS_MAX)) {
    // One more millisecond: what is told now is in it.
    const counts = await rows.counts({ tenant, from: now - METRICS_WINDOW_MS, to: now + 1 });
    for (const [name, value, labels] of samplesOf(figuresOf(counts, now), counts.counted.get('DuplicateEffectDetected') ?? 0)) samples.push([name, value, { tenant, ...labels }]);
  }
  return samples;
}
