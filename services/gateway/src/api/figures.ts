import { Controller, Inject } from '@nestjs/common';
import { systemClock } from '@holdfast/runtime';
import { z } from 'zod';
import { FIGURES } from '../domain/figure-list.js';
import { figuresOf, pointOf } from '../domain/figures.js';
import { endpoint, ok, Serves, type Answer, type CallOf } from '../http/endpoint.js';
import { Problem } from '../http/problem.js';
import { FigureRows } from '../views/figure-rows.js';
import { iso, Moment, Time } from './shapes.js';

const BUCKETS_MAX = 1000;
const DAY_MS = 24 * 60 * 60 * 1000;
const count = z.number().int();
const share = z.number().min(0).nullable();

const described = (name: string): { description: string } => ({ description: FIGURES.find((figure) => figure.name === name)?.formula ?? '' });
const age = z.number().nullable();

const Bucket = z
  .object({
    ...{ at: Time, accepted: count, completed: count, endedOtherwise: count, resumed: count, blocked: count, casesOpened: count, casesSettled: count, duplicateEffects: count, staleRejections: count },
    ...{ recoveryP50Ms: age, acceptedStateLoss: count, duplicateEffectRate: share, unknownsOpen: count, unknownsOldestMs: age, successfulResumes: share, compensationsOpen: count, compensationsOldestMs: age, compensationsFailed: count, verifiedOutcomes: share },
  })
  .meta({ id: 'FigureBucket' });
const FiguresOut = z
  .object({
    from: Time,
    to: Time,
    bucketMs: count,
    figures: z.object({
      recoveryMs: z.object({ count, p50: age, p95: age, max: age }).meta(described('recoveryMs')),
      acceptedStateLoss: count.meta(described('acceptedStateLoss')),
      duplicateEffectRate: share.meta(described('duplicateEffectRate')),
      unknowns: z.object({ open: count, oldestMs: age, p50Ms: age }).meta(described('unknowns')),
      successfulResumes: share.meta(described('successfulResumes')),
      compensationBacklog: z.object({ open: count, oldestMs: age, p50Ms: age, failed: count, escalated: count }).meta(described('compensationBacklog')),
      staleRejections: count.meta(described('staleRejections')),
      verifiedOutcomes: share.meta(described('verifiedOutcomes')),
    }),
    series: z.array(Bucket),
  })
  .meta({ id: 'Figures' });

export const getFigures = endpoint({
  ...{ id: 'getFigures', method: 'get', path: '/v1/figures', tag: 'figures', may: 'viewer', summary: 'How reliably runs fare: the figures and their course' },
  query: z.object({
    from: Moment.optional(),
    to: Moment.optional(),
    bucketMs: z.coerce.number().int().min(1000).max(366 * DAY_MS).optional().meta({ description: 'width of a bucket, milliseconds; a sixtieth of the time when absent' }),
  }),
  answers: { 200: { description: 'Figures of the time from `from` (a day ago) to `to` (now).', schema: FiguresOut } },
});

@Controller()
export class FiguresController {
  constructor(@Inject(FigureRows) private readonly rows: FigureRows) {}

  @Serves(getFigures)
  async figures({ query, principal }: CallOf<typeof getFigures>): Promise<Answer> {
    const now = systemClock.now();
    const to = query.to ?? now;
    const from = query.from ?? to - DAY_MS;
    if (from >= to) throw new Problem('invalid-request', 'query: from: is not before to');
    const bucketMs = query.bucketMs ?? Math.max(1000, Math.ceil((to - from) / 60));
    if ((to - from) / bucketMs > BUCKETS_MAX) throw new Problem('invalid-request', `query: bucketMs: makes more than ${BUCKETS_MAX} buckets`);
    const stretch = { tenant: principal.tenant, from, to };
    const [counts, buckets] = await Promise.all([this.rows.counts(stretch), this.rows.buckets(stretch, bucketMs)]);
    const series = Array.from({ length: Math.ceil((to - from) / bucketMs) }, (_, index) => {
      const start = from + index * bucketMs;
      return { at: iso(start), ...pointOf({ from: start, to: Math.min(start + bucketMs, to), counted: buckets.get(index) ?? new Map() }, counts) };
    });
    return ok({ from: iso(from), to: iso(to), bucketMs, figures: figuresOf(counts, now), series });
  }
}
