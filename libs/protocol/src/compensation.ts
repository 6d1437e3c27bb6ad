import { z } from 'zod';
import { DurationMs, Name, Named, Step } from './ids.js';
import { JsonValue } from './outcome.js';

/** RFC 6901: `` is the whole value, `/id` a member of it. */
export const Pointer = z.string().max(500).regex(/^(\/([^~/]|~0|~1)*)*$/, 'not a JSON Pointer such as "/id"');

/** Where one argument of the compensating call comes from: what was called, what it came to, the effect's operation key, or the contract itself. */
export const ArgumentSource = z.union([z.object({ from: z.enum(['args', 'result']), at: Pointer }), z.object({ from: z.literal('key') }), z.object({ value: JsonValue })]);
export type ArgumentSource = z.infer<typeof ArgumentSource>;

const tools = z.array(Name).min(1).max(100);

/**
 * `reverse`: after what answers every later effect with this order. `independent`: at any time,
 * beside others. `after` and `before` name tools whose effects are answered earlier or later.
 */
export const CompensationOrder = z.union([z.enum(['reverse', 'independent']), z.object({ after: tools.optional(), before: tools.optional() })]);
export type CompensationOrder = z.infer<typeof CompensationOrder>;

/** How the effect of a tool is answered. Never an undo: a new effect, with its own key. */
export const CompensationContract = z.object({
  tool: Named,
  /** The compensating call's arguments, member by member; `host`: a worker that serves the tool computes them. */
  args: z.union([z.literal('host'), z.record(z.string().min(1).max(200), ArgumentSource)]),
  order: CompensationOrder,
  /** Done without asking, or only once somebody with one of these roles has approved exactly its arguments. */
  authority: z.union([z.literal('automatic'), z.object({ approvers: z.array(z.string().min(1).max(100)).min(1).max(50) })]),
  /** What is not done so long after its plan was opened is brought to people. It is never dropped for that. Milliseconds. */
  deadlineMs: DurationMs.min(1),
  /** Whom a compensation that failed, or is late, is brought to. */
  escalateTo: z.string().min(1).max(200).optional(),
  /** Counts only once the compensating tool's probe has found it at the target. */
  verify: z.boolean(),
  /** The version that the effect left behind, handed on in this argument: the compensating tool fails with `concurrency_conflict` where somebody has changed the thing since, and the effect stands. */
  precondition: z.object({ version: Pointer, as: z.string().min(1).max(200) }).optional(),
  /** What remains all the same, such as a fee; `amount` points into what the compensation came to. */
  residual: z.array(z.object({ what: z.string().min(1).max(500), amount: Pointer.optional() })).max(20).optional(),
  /** The effect has an amount that may be answered in parts, each handed on in the argument `as`. Whole numbers, of the smallest unit. */
  partial: z.object({ amount: z.object({ from: z.enum(['args', 'result']), at: Pointer }), as: z.string().min(1).max(200) }).optional(),
});
export type CompensationContract = z.infer<typeof CompensationContract>;

/** Which effects of the run are meant. `amount`: so much of one effect, in its contract's unit; the rest when absent. */
export const PlanScope = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('run') }),
  z.object({ kind: z.literal('after'), step: Step }),
  z.object({ kind: z.literal('steps'), steps: z.array(Step).min(1).max(1000), amount: z.number().int().positive().optional() }),
]);
export type PlanScope = z.infer<typeof PlanScope>;
