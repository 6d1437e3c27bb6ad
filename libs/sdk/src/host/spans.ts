import { spanOf, traceOf, traceparentOf, type Message, type Outcome, type ProbeAnswer, type RunId } from '@holdfast/protocol';
import type { SpanFacts, Tracing } from '@holdfast/runtime/telemetry';
import type { Shot } from './firing.js';
import type { HostObserver, Worked } from './observer.js';
import type { ProbeTask } from './probing.js';

/** Tells of what a worker did, in the traces of its runs: who and what, never with which arguments or results. */
export class HostSpans implements HostObserver {
  readonly #tracing: Tracing;
  readonly #now: () => number;

  constructor(tracing: Tracing, now: () => number) {
    this.#tracing = tracing;
    this.#now = now;
  }

  onFired({ run, step, attempt, tool, effect, local }: Shot, startedAt: number, status: Outcome['status']): void {
    this.#tell(run, ['fire', step, attempt], local === true ? ['step', step] : ['attempt', step, attempt], {
      ...{ name: `${tool.name}@${tool.version}`, kind: 'client', startedAt },
      attributes: { 'holdfast.step': step, 'holdfast.attempt': attempt, 'holdfast.tool': tool.name, 'holdfast.effect': effect, 'holdfast.outcome': status },
      failed: status === 'failed' || status === 'unknown' ? status : undefined,
    });
  }

  onProbed({ run, data: { step, attempt, probe, tool, purpose } }: ProbeTask, startedAt: number, status: ProbeAnswer['status']): void {
    this.#tell(run, ['probe', step, attempt, probe], purpose === undefined ? ['case', step, attempt] : [], {
      ...{ name: `probe ${tool.name}@${tool.version}`, kind: 'client', startedAt },
      attributes: { 'holdfast.step': step, 'holdfast.attempt': attempt, 'holdfast.tool': tool.name, 'holdfast.probe': probe, 'holdfast.answer': status },
    });
  }

  onWorked({ run, step, kind, name, attempt, startedAt, failed, usage }: Worked): void {
    const used = usage === undefined ? {} : { 'holdfast.tokens_in': usage.tokensIn ?? 0, 'holdfast.tokens_out': usage.tokensOut ?? 0, 'holdfast.cost': usage.cost ?? 0 };
    this.#tell(run, ['work', step, attempt], ['step', step], { name: `${kind} ${name}`, kind: 'internal', startedAt, attributes: { 'holdfast.step': step, 'holdfast.attempt': attempt, ...used }, failed: failed ? 'failed' : undefined });
  }

  onExecuted(run: RunId, fence: number, agent: string, startedAt: number): void {
    this.#tell(run, ['execution', fence], [], { name: `execute ${agent}`, kind: 'internal', startedAt, attributes: { 'holdfast.fence': fence } });
  }

  traceparent(run: string, { type, data }: Message): string | undefined {
    if (run.startsWith('~')) return undefined;
    return traceparentOf(traceOf(run), spanOf(run, ...partsOf(type, data as About)));
  }

  #tell(run: RunId, parts: readonly (string | number)[], parent: readonly (string | number)[], facts: Pick<SpanFacts, 'name' | 'kind' | 'startedAt' | 'attributes' | 'failed'>): void {
    this.#tracing.span({ ...facts, trace: traceOf(run), span: spanOf(run, ...parts), parent: spanOf(run, ...parent), endedAt: this.#now(), attributes: { 'holdfast.run': run, ...facts.attributes } });
  }
}

interface About {
  readonly step?: string;
  readonly attempt?: number;
  readonly probe?: number;
}

/** Of which span a message speaks: of an attempt's call, of a probe, of a step, or of the run. */
function partsOf(type: string, { step, attempt = 0, probe = 0 }: About): (string | number)[] {
  if (step === undefined) return [];
  if (type === 'EffectReported' || type === 'EffectHeartbeat') return ['fire', step, attempt];
  return type === 'ProbeReported' ? ['probe', step, attempt, probe] : ['step', step];
}
