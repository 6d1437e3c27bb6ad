import type { Run, RunEvent, RunSummary } from '../api/client.js';

export interface RunFilter {
  readonly status: readonly Run['status'][];
  readonly agent: string;
  /** How the id begins. */
  readonly id: string;
}
export const noFilter: RunFilter = { status: [], agent: '', id: '' };

export interface RunPage {
  readonly items: RunSummary[];
  readonly next: string | null;
}

export const passes = (run: RunSummary, { status, agent, id }: RunFilter): boolean => (status.length === 0 || status.includes(run.status)) && (agent === '' || run.agent?.name === agent) && run.id.startsWith(id);

/** Runs that events are about: those on the page, and those that are new. Types that change nothing that lists show are left out. */
export function touched(events: readonly RunEvent[], shown: ReadonlySet<string>): { readonly changed: string[]; readonly begun: string[] } {
  const changed = new Set<string>();
  const begun = new Set<string>();
  for (const { type, run, topic } of events) {
    if (topic !== 'run.events') continue;
    if (shown.has(run)) changed.add(run);
    else if (type === 'RunAccepted') begun.add(run);
  }
  return { changed: [...changed], begun: [...begun] };
}

/** Puts what is known anew into the pages: a run that is there changes in place, one that is new comes first, one that a filter shuts out goes. */
export function withRuns(pages: readonly RunPage[], news: readonly RunSummary[], filter: RunFilter): RunPage[] {
  const byId = new Map(news.map((run) => [run.id, run]));
  const shown = new Set(pages.flatMap(({ items }) => items.map(({ id }) => id)));
  const fresh = news.filter((run) => !shown.has(run.id) && passes(run, filter)).sort((a, b) => b.acceptedAt.localeCompare(a.acceptedAt) || b.id.localeCompare(a.id));
  return pages.map(({ items, next }, index) => {
    const kept = items.flatMap((run) => {
      const now = byId.get(run.id) ?? run;
      return passes(now, filter) ? [now] : [];
    });
    return { items: index === 0 ? [...fresh, ...kept] : kept, next };
  });
}
