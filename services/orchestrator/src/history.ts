import { RunGranted, type HistoryStep, type Lease, type Message } from '@holdfast/protocol';
import type { KnownRun, StepState } from './domain/run.js';

/** Bytes of history on one page; a page with its envelope stays well below a message's limit. */
export const PAGE_BYTES = 160 * 1024;

/** What is recorded of a run's steps, in stream order, as a replay needs it. */
export const historyOf = (run: KnownRun): HistoryStep[] => [...run.steps.values()].filter((state) => state.kind !== 'call' || !state.bound).map(historyStep);

/** The grant of a run to its worker, with its whole history in pages. */
export function grantPages(run: KnownRun, lease: Lease, generation: number | null): Message[] {
  if (run.agent === null) return [];
  const pages = pagesOf(historyOf(run));
  const { agent } = run;
  return pages.map((steps, i) =>
    RunGranted({
      worker: lease.worker,
      fence: lease.fence,
      ...(generation === null ? {} : { generation }),
      tenant: run.tenant,
      agent,
      input: i === 0 ? run.input : null,
      page: i + 1,
      pages: pages.length,
      steps,
      observed: i === 0 ? [...run.observed] : [],
    }),
  );
}

/** Steps in pages, each small enough for a message; at least one page. */
export function pagesOf(steps: readonly HistoryStep[]): HistoryStep[][] {
  const pages: HistoryStep[][] = [];
  let page: HistoryStep[] = [];
  let bytes = 0;
  for (const step of steps) {
    const size = Buffer.byteLength(JSON.stringify(step));
    if (page.length > 0 && bytes + size > PAGE_BYTES) {
      pages.push(page);
      page = [];
      bytes = 0;
    }
    page.push(step);
    bytes += size;
  }
  return [...pages, page];
}

export function historyStep(state: StepState): HistoryStep {
  switch (state.kind) {
    case 'call':
      return {
        kind: 'call',
        call: state.call,
        fire: state.fire,
        attempt: state.attempt,
        ...(state.group === null ? {} : { group: state.group }),
        ...(state.outcome === null ? {} : { outcome: state.outcome }),
      };
    case 'record':
      return { kind: 'record', step: state.step, as: state.as, name: state.name, result: state.result };
    case 'wait':
      return { kind: 'wait', step: state.step, wait: state.wait, ...(state.abandoned ? { abandoned: true } : {}), ...(state.end === null ? {} : { end: state.end }) };
    case 'try':
      return { kind: 'try', step: state.step, as: state.as, name: state.name, attempt: state.attempt, failure: state.failure, retryAt: state.retryAt };
  }
}
