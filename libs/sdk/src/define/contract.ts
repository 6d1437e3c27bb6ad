import { DEFAULT_RETRY, describeIssues, ToolContract, type FailureClass, type Json, type Pool, type Recovery, type RetryPolicy } from '@holdfast/protocol';
import { z } from 'zod';
import { InvalidDefinition } from '../errors.js';
import { refuseUnknown, type MembersOf } from './members.js';
import type { Probe, ProbeSchedule } from './probe.js';
import type { Ageing, ApprovalPolicy, Breaker, Compensation, ContractSpec, Fallback, ToolReference } from './tool.js';

/**
 * The contract of a tool as it is published.
 * @throws InvalidDefinition naming what is wrong, or what contradicts what
 */
export function contractOf(tool: ToolReference, spec: ContractSpec, probe: Probe<never> | null, pool: Pool, compensate?: Compensation<never, never> | null): ToolContract {
  const { ageing, breaker, recovery } = spec;
  const { fallback } = tool;
  refuseUnknownParts(tool, spec, probe, compensate ?? null);
  if (probe !== null && typeof probe.ask !== 'function') throw wrong(tool, 'probe needs ask: (args, context) => an answer');
  if (fallback !== null && fallback.tool?.kind !== 'tool') throw wrong(tool, 'fallback needs tool: one made by defineTool or referTool');
  const parsed = ToolContract.safeParse({
    name: tool.name,
    version: tool.version,
    pool,
    effect: tool.effect,
    keyScope: tool.keyScope,
    input: jsonSchema(tool, 'input'),
    output: jsonSchema(tool, 'output'),
    material: tool.material === undefined ? undefined : [...tool.material],
    retry: { ...DEFAULT_RETRY, ...spec.retry },
    timeoutMs: spec.timeout ?? 30_000,
    queueMs: spec.queueTimeout ?? 60_000,
    settleDelayMs: spec.settleDelay ?? null,
    probe:
      probe === null
        ? null
        : present({ sealing: probe.sealing, timeoutMs: probe.timeout, initialMs: probe.schedule?.initial, factor: probe.schedule?.factor, maxMs: probe.schedule?.max }),
    owner: spec.owner ?? null,
    ageing: ageing && present({ remindAfterMs: ageing.remindAfter, escalateAfterMs: ageing.escalateAfter, escalateTo: ageing.escalateTo, verdictRole: ageing.verdictRole }),
    approval: tool.approval && { approvers: [...tool.approval.approvers], fourEyes: tool.approval.fourEyes ?? false },
    heartbeatMs: spec.heartbeat,
    targetRemembersKeysForMs: spec.targetRemembersKeysFor,
    concurrencyMax: spec.concurrency,
    breaker: breaker && present({ failures: breaker.failures, initialMs: breaker.initial, maxMs: breaker.max }),
    holdMs: spec.hold,
    fallback: fallback === null ? undefined : { name: fallback.tool.name, version: fallback.tool.version },
    compensate: compensate === undefined || compensate === null ? undefined : declaredCompensation(tool, compensate),
    pointOfNoReturn: spec.pointOfNoReturn === true ? true : undefined,
    recovery: recovery && present(recovery),
  });
  if (!parsed.success) throw wrong(tool, describeIssues(parsed.error));
  const contract = present(parsed.data);
  for (const fault of contradictions(contract)) throw wrong(tool, fault);
  refuseCircles(tool);
  return contract;
}

const RETRY: MembersOf<RetryPolicy> = { attemptsMax: true, initialMs: true, maxMs: true, factor: true, elapsedMaxMs: true };
const AGEING: MembersOf<Ageing> = { remindAfter: true, escalateAfter: true, escalateTo: true, verdictRole: true };
const BREAKER: MembersOf<Breaker> = { failures: true, initial: true, max: true };
const APPROVAL: MembersOf<ApprovalPolicy> = { approvers: true, fourEyes: true };
const FALLBACK: MembersOf<Fallback> = { tool: true, args: true };
const PROBE: MembersOf<Probe<never>> = { sealing: true, ask: true, timeout: true, schedule: true };
const SCHEDULE: MembersOf<ProbeSchedule> = { initial: true, factor: true, max: true };
const COMPENSATE: MembersOf<Compensation<never, never>> = { tool: true, args: true, order: true, authority: true, deadline: true, escalateTo: true, verify: true, precondition: true, residual: true, partial: true };

/** Each part of a declaration, and of its parts. */
function refuseUnknownParts(tool: ToolReference, { retry, ageing, breaker }: ContractSpec, probe: Probe<never> | null, compensate: Compensation<never, never> | null): void {
  const refuse = (part: string, given: unknown, known: Readonly<Record<string, true>>): void => refuseUnknown(`tool ${nameOf(tool)}: ${part}`, given, known);
  refuse('retry', retry, RETRY);
  refuse('ageing', ageing, AGEING);
  refuse('breaker', breaker, BREAKER);
  refuse('approval', tool.approval, APPROVAL);
  refuse('fallback', tool.fallback, FALLBACK);
  refuse('probe', probe, PROBE);
  refuse('probe.schedule', probe?.schedule, SCHEDULE);
  refuse('compensate', compensate, COMPENSATE);
  refuse('compensate.order', compensate?.order, { after: true, before: true });
  refuse('compensate.authority', compensate?.authority, { approvers: true });
  refuse('compensate.precondition', compensate?.precondition, { version: true, as: true });
  refuse('compensate.partial', compensate?.partial, { amount: true, as: true });
  refuse('compensate.partial.amount', compensate?.partial?.amount, { from: true, at: true });
  for (const each of [compensate?.residual].flat()) refuse('compensate.residual', each, { what: true, amount: true });
}

/** How long a compensation may take before people are told, milliseconds. */
const DEFAULT_COMPENSATION_DEADLINE_MS = 3_600_000;

function declaredCompensation(tool: ToolReference, compensate: Compensation<never, never>): unknown {
  const { args, order, authority, precondition, residual, partial, escalateTo } = compensate;
  if (compensate.tool?.kind !== 'tool') throw wrong(tool, 'compensate needs tool: one made by defineTool or referTool');
  if (compensate.tool.keyScope === 'target') throw wrong(tool, `compensate.tool: ${compensate.tool.name} has keyScope "target", and a compensation’s key comes from the effect that it answers: use one with keyScope "run"`);
  return present({
    tool: { name: compensate.tool.name, version: compensate.tool.version },
    args: typeof args === 'function' ? 'host' : args,
    order: order === undefined || typeof order === 'string' ? (order ?? 'reverse') : present({ after: order.after, before: order.before }),
    authority: authority ?? 'automatic',
    deadlineMs: compensate.deadline ?? DEFAULT_COMPENSATION_DEADLINE_MS,
    escalateTo,
    verify: compensate.verify ?? true,
    precondition,
    residual,
    partial,
  });
}

/** What each member allows, and all together don't. */
function* contradictions(contract: ToolContract): Generator<string> {
  const { effect, probe, breaker } = contract;
  if (effect === 'pure') {
    if (probe?.sealing === true) yield 'a pure tool applies nothing, so there is nothing that a sealing probe could void: leave probe out';
    if (contract.compensate !== undefined) yield 'a pure tool applies nothing, so there is nothing to compensate: leave compensate out';
    if (contract.pointOfNoReturn !== undefined) yield 'a pure tool applies nothing, so no way back ends with it: leave pointOfNoReturn out';
    if (contract.settleDelayMs !== null) yield 'a pure tool applies nothing, so nothing of it can take effect late: leave settleDelay out';
    if (contract.targetRemembersKeysForMs !== undefined) yield 'a pure tool applies nothing, so its target remembers no key: leave targetRemembersKeysFor out';
  }
  if (probe !== null && (probe.initialMs ?? 1000) > (probe.maxMs ?? 300_000)) yield 'probe.schedule.initial is above probe.schedule.max';
  if (breaker !== undefined && (breaker.initialMs ?? 1000) > (breaker.maxMs ?? 60_000)) yield 'breaker.initial is above breaker.max';
  for (const [failureClass, recovery] of Object.entries(contract.recovery ?? {}) as [FailureClass, Recovery][]) {
    const fault = refused(contract, failureClass, recovery);
    if (fault !== null) yield `recovery.${failureClass}: "${recovery}" ${fault}`;
  }
}

const ANOTHER_ATTEMPT: readonly Recovery[] = ['retry', 'retry_once'];
const DID_NOT_HAPPEN: readonly Recovery[] = ['fail', 'reject', 'repair_once'];
const NOBODY_KNOWS: readonly FailureClass[] = ['unknown_outcome', 'partial_effect'];

/** Why a recovery can't be, or null. */
function refused({ effect }: ToolContract, failureClass: FailureClass, recovery: Recovery): string | null {
  if (effect === 'irreversible' && ANOTHER_ATTEMPT.includes(recovery)) {
    return 'would fire an irreversible effect again without evidence; "retry_if_not_applied" tries again where the tool throws Failed with notApplied: true';
  }
  if (effect !== 'pure' && NOBODY_KNOWS.includes(failureClass) && DID_NOT_HAPPEN.includes(recovery)) {
    return `would settle by a guess what nobody knows; it takes "unknown"${effect === 'irreversible' ? '' : ', or "retry" under the same key'}`;
  }
  if (effect === 'pure' && recovery === 'unknown') return 'leaves an outcome open that a pure tool can\'t have: it applies nothing';
  return null;
}

/** A fallback that leads back to a tool before it would never end. */
function refuseCircles(tool: ToolReference): void {
  const path = [nameOf(tool)];
  for (let next = tool.fallback?.tool; next !== undefined; next = next.fallback?.tool) {
    const name = nameOf(next);
    path.push(name);
    if (path.indexOf(name) < path.length - 1) throw wrong(tool, `its fallback leads back to itself: ${path.join(', then ')}`);
  }
}

const nameOf = ({ name, version }: ToolReference): string => `${name}@${version}`;

const wrong = (tool: ToolReference, fault: string): InvalidDefinition => new InvalidDefinition(`tool ${nameOf(tool)}: ${fault}`);

/** Without the members that are undefined: what is published says only what was said. */
const present = <T extends object>(object: T): T => Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as T;

/** The input as callers write it, the output as callers read it. What JSON Schema can't say is left open. */
function jsonSchema(tool: ToolReference, side: 'input' | 'output'): Json {
  const schema = side === 'input' ? tool.input : tool.output;
  if (typeof schema?.safeParse !== 'function') throw wrong(tool, `${side} is no zod schema`);
  return JSON.parse(JSON.stringify(z.toJSONSchema(schema, { io: side, unrepresentable: 'any' }))) as Json;
}
