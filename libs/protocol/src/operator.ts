import { z } from 'zod';
import { Attempt, Digest, EffectStep, Name, NamedInstant, RunId, Step, Tenant, Version } from './ids.js';
import { JsonValue } from './outcome.js';
import { message } from './message.js';

/** Who acts, and in which roles. Whoever publishes the command vouches for both. */
export const Operator = z.object({ name: z.string().min(1).max(200), roles: z.array(z.string().min(1).max(100)).max(50) });
export type Operator = z.infer<typeof Operator>;

const command = {
  /** Chosen by whoever asks; the same one, read again, changes nothing. */
  command: z.string().min(1).max(200),
  by: Operator,
};

/** A person's verdict on a case. */
export const ResolveCase = message(
  'ResolveCase',
  z.object({
    ...command,
    step: EffectStep,
    attempt: Attempt,
    verdict: z.discriminatedUnion('status', [z.object({ status: z.literal('applied'), result: JsonValue }), z.object({ status: z.literal('not_applied') })]),
    reason: z.string().min(1).max(2000),
    evidence: z.string().min(1).max(2000),
    /** When the person looked; default: when the command is decided. */
    readAt: NamedInstant.optional(),
    force: z.boolean().optional(),
  }),
);
export const AssignCase = message('AssignCase', z.object({ ...command, step: EffectStep, attempt: Attempt, owner: z.string().min(1).max(200).nullable() }));

/** A person's word on an approval. `digest`: of what was shown; another one is not what was asked. */
export const DecideApproval = message(
  'DecideApproval',
  z.object({
    ...command,
    step: Step,
    decision: z.enum(['approve', 'reject']),
    digest: z.string().optional(),
    feedback: z.string().max(4000).optional(),
    /** Until when the approval may be used. */
    expiresAt: NamedInstant.optional(),
  }),
);

/** `graceful`: what is in flight ends first. `immediate`: the run is over at once, late ends are kept. `tree`: its children too. */
export const CancelRun = message('CancelRun', z.object({ ...command, reason: z.string().min(1).max(2000), scope: z.enum(['run', 'tree']), manner: z.enum(['graceful', 'immediate']), /** What it did is to be compensated. */ compensate: z.literal(true).optional() }));
export const PauseRun = message('PauseRun', z.object({ ...command, reason: z.string().min(1).max(2000) }));
export const UnpauseRun = message('UnpauseRun', z.object({ ...command }));
/** Lets a quarantined run go on, by whoever has looked into it. */
export const UnquarantineRun = message('UnquarantineRun', z.object({ ...command, reason: z.string().min(1).max(2000) }));

/** What a run did is to be answered: all of it, or the effects at `steps`. `amount`: so much of the one effect named. */
export const CompensateRun = message('CompensateRun', z.object({ ...command, reason: z.string().min(1).max(2000), steps: z.array(Step).min(1).max(1000).optional(), amount: z.number().int().positive().optional() }));
/** A person's word on one compensation. `digest`: of the arguments that were shown. Rejected, the effect stands. */
export const DecideCompensation = message('DecideCompensation', z.object({ ...command, step: Step, decision: z.enum(['approve', 'reject']), digest: Digest.optional(), reason: z.string().max(2000).optional() }));

/** Begins another run with what this one has recorded before a step. Without `from`: a retry, from the step that failed on. */
export const ForkRun = message('ForkRun', z.object({ ...command, run: RunId, from: Step.optional(), /** Instead of the origin's. */ input: JsonValue.optional() }));

/** What more than one run hangs on, and an operator can hold still. Without a version: all of them. */
export const BrakeTarget = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('tool'), name: Name, version: Version.optional() }),
  z.object({ kind: z.literal('agent'), name: Name, version: Version.optional() }),
  z.object({ kind: z.literal('tenant'), name: Tenant }),
]);
export type BrakeTarget = z.infer<typeof BrakeTarget>;

/** Written to every lane, each under `brakeStream(lane)` and on that very partition: a lane decides for itself, in its own order. */
export const SetBrake = message('SetBrake', z.object({ ...command, target: BrakeTarget, reason: z.string().min(1).max(2000) }));
export const ReleaseBrake = message('ReleaseBrake', z.object({ ...command, target: BrakeTarget }));

/** Stream id of a lane's brakes. No run id begins so. */
export const brakeStream = (lane: number): string => `~brakes/${lane}`;
/** Names one brake: `tool:refund@2`, `tenant:acme`. */
export const brakeKey = (target: BrakeTarget): string => `${target.kind}:${target.name}${target.kind === 'tenant' || target.version === undefined ? '' : `@${target.version}`}`;

/** Types on the topic `operator.commands`. */
export const operatorMessages = [ResolveCase, AssignCase, DecideApproval, CancelRun, PauseRun, UnpauseRun, UnquarantineRun, ForkRun, SetBrake, ReleaseBrake, CompensateRun, DecideCompensation] as const;
