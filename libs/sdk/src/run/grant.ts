import type { Fence, HistoryStep, Json, MessageOf, Named, RunGranted, RunId, Step, Tenant } from '@holdfast/protocol';

export type GrantPage = MessageOf<typeof RunGranted>['data'];

/** A whole grant: the right to advance a run, with everything recorded of it. */
export interface Grant {
  readonly run: RunId;
  readonly fence: Fence;
  readonly tenant: Tenant;
  readonly agent: Named;
  readonly input: Json;
  readonly steps: readonly HistoryStep[];
  readonly observed: readonly Step[];
}

/**
 * Joins the pages of one grant, in whatever order they come. Undefined while pages of the newest
 * fence are missing.
 */
export function joinGrant(run: RunId, pages: readonly GrantPage[]): Grant | undefined {
  const fence = Math.max(...pages.map((page) => page.fence));
  const byNumber = new Map(pages.filter((page) => page.fence === fence).map((page) => [page.page, page]));
  const first = byNumber.get(1);
  if (first === undefined || byNumber.size < first.pages) return undefined;
  const steps = [...byNumber].sort(([a], [b]) => a - b).flatMap(([, page]) => page.steps);
  return { run, fence: first.fence, tenant: first.tenant, agent: first.agent, input: first.input, steps, observed: first.observed };
}
