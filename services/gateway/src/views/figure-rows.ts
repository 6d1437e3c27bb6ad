import { topics } from '@holdfast/protocol';
import type { Counted, Counts, Interval } from '../domain/figures.js';
import { rowsOf } from '../store/database.js';
import type { Views } from './views.js';

const RESUMES_MAX = 10_000;
const OPEN_MAX = 10_000;

const STEP = (row: string): string => `substring(${row}.data from '^\\{"step":"([^"]*)"')`;

interface Stretch {
  readonly tenant: string;
  readonly from: number;
  readonly to: number;
}

/** Reads from the read models what figures are made of. */
export class FigureRows {
  constructor(private readonly views: Views) {}

  async counts({ tenant, from, to }: Stretch): Promise<Counts> {
    const values = [tenant, from, to];
    const [counted, recoveries, gaps, unknowns, plans, open] = await Promise.all([
      this.#read<{ what: Counted; n: number }>(`select counts_as as what, count(*)::int as n from {event} e where e.tenant = $1 and e.time >= $2 and e.time < $3 and counts_as is not null group by counts_as`, values),
      this.#read<{ at: number; ms: number; wentOn: boolean }>(
        `select e.time as at, greatest(0, e.time - b.time) as ms, exists (select from {event} a where a.subject = e.subject and a.topic = e.topic and a.version > e.version) as "wentOn"
         from {event} e join {event} b on b.subject = e.subject and b.topic = e.topic and b.version = e.version - 1
         where e.tenant = $1 and e.time >= $2 and e.time < $3 and e.counts_as = 'RunResumed' order by e.time desc limit ${RESUMES_MAX}`,
        values,
      ),
      this.#read<{ at: number; missing: number }>(
        `select time as at, (version - before - 1)::int as missing from (
           select time, version, lag(version) over (partition by subject order by version) as before from {event} e where e.tenant = $1 and e.time >= $2 and e.time < $3 and e.topic = '${topics.runEvents}') v
         where version > before + 1`,
        values,
      ),
      // A case is of one step, which its events name first. Read as text: PostgreSQL's JSON refuses a NUL anywhere in them.
      this.#intervals('CaseOpened', 'CaseSettled', `and ${STEP('e')} = ${STEP('o')}`, values),
      this.#intervals('PlanOpened', 'PlanConcluded', '', values),
      this.#read<{ since: number }>(`select since from {schema}.matter where tenant = $1 and status = 'open' order by since limit ${OPEN_MAX}`, [tenant]),
    ]);
    return { counted: new Map(counted.map(({ what, n }) => [what, n])), recoveries, gaps, unknowns, plans, openUnknownSince: open.map(({ since }) => since) };
  }

  /** How often each thing happened in each bucket, by the bucket's number. */
  async buckets({ tenant, from, to }: Stretch, bucketMs: number): Promise<Map<number, Map<Counted, number>>> {
    const rows = await this.#read<{ at: number; what: Counted; n: number }>(
      `select ((time - $2) / $4)::int as at, counts_as as what, count(*)::int as n from {event} where tenant = $1 and time >= $2 and time < $3 and counts_as is not null group by 1, 2`,
      [tenant, from, to, bucketMs],
    );
    const buckets = new Map<number, Map<Counted, number>>();
    for (const { at, what, n } of rows) buckets.set(at, (buckets.get(at) ?? new Map<Counted, number>()).set(what, n));
    return buckets;
  }

  /** Tenants that have runs, in their order. */
  async tenants(limit: number): Promise<string[]> {
    const rows = await this.#read<{ tenant: string }>(
      `with recursive t as ((select tenant from {schema}.run order by tenant limit 1)
         union all select (select r.tenant from {schema}.run r where r.tenant > t.tenant order by r.tenant limit 1) from t where t.tenant is not null)
       select tenant from t where tenant is not null limit $1`,
      [limit],
    );
    return rows.map(({ tenant }) => tenant);
  }

  /** What began before the end of the window and was not over before its start. The newest ones, where there are very many. */
  #intervals(opened: Counted, closed: Counted, same: string, values: readonly unknown[]): Promise<Interval[]> {
    return this.#read<Interval>(
      `select since, until from (
         select o.time as since, (select min(e.time) from {event} e where e.subject = o.subject and e.topic = o.topic and e.counts_as = '${closed}' and e.version > o.version ${same}) as until
         from {event} o where o.tenant = $1 and o.counts_as = '${opened}' and o.time < $3) i
       where until is null or until >= $2 order by since desc limit ${OPEN_MAX}`,
      values,
    );
  }

  #read<Row>(text: string, values: readonly unknown[]): Promise<Row[]> {
    const { database, schema } = this.views;
    return rowsOf<Row>(database, text.replaceAll('{event}', `${schema}.event`).replaceAll('{schema}', schema), values);
  }
}
