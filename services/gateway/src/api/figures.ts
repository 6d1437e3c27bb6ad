import { Controller, Inject } from '@nestjs/common';
import { topics } from '@holdfast/protocol';
import { systemClock } from '@holdfast/runtime';
import { z } from 'zod';
import { figuresOf, type Counted, type Counts } from '../domain/figures.js';
import { endpoint, ok, Serves, type Answer, type CallOf } from '../http/endpoint.js';
import { Problem } from '../http/problem.js';
import { rowsOf } from '../store/database.js';
import { Views } from '../views/views.js';
import { iso, Moment, Time } from './shapes.js';

const BUCKETS_MAX = 1000;
const DAY_MS = 24 * 60 * 60 * 1000;
const count = z.number().int();
const share = z.number().min(0).nullable();

const Bucket = z.object({ at: Time, accepted: count, completed: count, endedOtherwise: count, resumed: count, blocked: count, casesOpened: count, casesSettled: count, duplicateEffects: count, staleRejections: count }).meta({ id: 'FigureBucket' });
const FiguresOut = z
  .object({
    from: Time,
    to: Time,
    bucketMs: count,
    figures: z.object({
      recoveryMs: z.object({ count, p50: z.number().nullable(), p95: z.number().nullable(), max: z.number().nullable() }).meta({ description: 'from the last event before a resume to the resume' }),
      acceptedStateLoss: count.meta({ description: 'events missing in the streams of runs' }),
      duplicateEffectRate: share.meta({ description: 'effects found to have happened twice, for each that succeeded' }),
      unknowns: z.object({ open: count, oldestMs: z.number().nullable(), p50Ms: z.number().nullable() }).meta({ description: 'outcomes that nobody knows now, and for how long' }),
      successfulResumes: share.meta({ description: 'resumes after which the run went on' }),
      compensationBacklog: z.null().meta({ description: 'not there yet' }),
      staleRejections: count.meta({ description: 'intents refused since the run had changed hands' }),
      verifiedOutcomes: share.meta({ description: 'completed runs whose outcome was verified' }),
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

interface BucketRow {
  readonly at: number;
  readonly what: string;
  readonly n: number;
}

@Controller()
export class FiguresController {
  constructor(@Inject(Views) private readonly views: Views) {}

  @Serves(getFigures)
  async figures({ query, principal }: CallOf<typeof getFigures>): Promise<Answer> {
    const now = systemClock.now();
    const to = query.to ?? now;
    const from = query.from ?? to - DAY_MS;
    if (from >= to) throw new Problem('invalid-request', 'query: from: is not before to');
    const bucketMs = query.bucketMs ?? Math.max(1000, Math.ceil((to - from) / 60));
    if ((to - from) / bucketMs > BUCKETS_MAX) throw new Problem('invalid-request', `query: bucketMs: makes more than ${BUCKETS_MAX} buckets`);
    const [counts, rows] = await Promise.all([this.#counts(principal.tenant, from, to), this.#buckets(principal.tenant, from, to, bucketMs)]);
    const series = Array.from({ length: Math.ceil((to - from) / bucketMs) }, (_, index) => {
      const of = (what: Counted): number => rows.find((row) => row.at === index && row.what === what)?.n ?? 0;
      return {
        at: iso(from + index * bucketMs),
        ...{ accepted: of('RunAccepted'), completed: of('completed') + of('verified'), endedOtherwise: of('ended_otherwise'), resumed: of('RunResumed'), blocked: of('RunBlocked') },
        ...{ casesOpened: of('CaseOpened'), casesSettled: of('CaseSettled'), duplicateEffects: of('DuplicateEffectDetected'), staleRejections: of('stale') },
      };
    });
    return ok({ from: iso(from), to: iso(to), bucketMs, figures: { ...figuresOf(counts, now), compensationBacklog: null }, series });
  }

  async #counts(tenant: string, from: number, to: number): Promise<Counts> {
    const { database, schema } = this.views;
    const inTime = `e.tenant = $1 and e.time >= $2 and e.time < $3`;
    const values = [tenant, from, to];
    const [counted, recoveries, missing, open] = await Promise.all([
      rowsOf<{ what: string; n: number }>(database, `select counts_as as what, count(*)::int as n from ${schema}.event e where ${inTime} and counts_as is not null group by counts_as`, values),
      rowsOf<{ ms: number; went_on: boolean }>(
        database,
        `select e.time - b.time as ms, exists (select from ${schema}.event a where a.subject = e.subject and a.topic = e.topic and a.version > e.version) as went_on
         from ${schema}.event e join ${schema}.event b on b.subject = e.subject and b.topic = e.topic and b.version = e.version - 1
         where ${inTime} and e.counts_as = 'RunResumed' order by e.time desc limit 10000`,
        values,
      ),
      rowsOf<{ n: number }>(
        database,
        `select coalesce(sum(gap), 0)::int as n from (select max(version) - min(version) + 1 - count(*) as gap from ${schema}.event e where ${inTime} and e.topic = $4 group by subject) g`,
        [...values, topics.runEvents],
      ),
      rowsOf<{ since: number }>(database, `select since from ${schema}.matter where tenant = $1 and status = 'open' order by since limit 10000`, [tenant]),
    ]);
    const of = (what: Counted): number => counted.find((row) => row.what === what)?.n ?? 0;
    return {
      missing: missing[0]?.n ?? 0,
      recoveriesMs: recoveries.map(({ ms }) => Math.max(0, ms)),
      resumed: recoveries.length,
      wentOn: recoveries.filter(({ went_on }) => went_on).length,
      succeededEffects: of('EffectSucceeded'),
      duplicateEffects: of('DuplicateEffectDetected'),
      staleRejections: of('stale'),
      completed: of('completed') + of('verified'),
      verified: of('verified'),
      openUnknownSince: open.map(({ since }) => since),
    };
  }

  async #buckets(tenant: string, from: number, to: number, bucketMs: number): Promise<BucketRow[]> {
    const { database, schema } = this.views;
    return rowsOf<BucketRow>(
      database,
      `select ((time - $2) / $4)::int as at, counts_as as what, count(*)::int as n from ${schema}.event where tenant = $1 and time >= $2 and time < $3 and counts_as is not null group by 1, 2`,
      [tenant, from, to, bucketMs],
    );
  }
}
