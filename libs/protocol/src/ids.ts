import { z } from 'zod';

/*
 * Terminology (one word for one thing; the full list is docs/glossary.md):
 *   run            one execution of an agent; its events are one stream
 *   step           one recorded unit in a run, named by its cursor: `3`, or `3.1` inside a group
 *   operation key  the identity of an effect, made by Holdfast from recorded position
 *   fence          rises whenever a run changes hands; an older one is refused
 *   lane           one partition number across topics, worked by one instance, in order
 */

/** An identifier that people choose: 1 to 200 characters, well-formed Unicode, no control characters. U+FFFD stands where one was damaged on its way. */
const identifier = (what: string) =>
  z
    .string()
    .min(1, `${what} is empty`)
    .max(200, `${what} is longer than 200 characters`)
    .refine((value) => value.isWellFormed() && !/[\p{Cc}\p{Cs}\u2028\u2029\ufffd]/u.test(value), {
      message: `${what} holds a control character or half a surrogate pair`,
    });

/** `~` at its beginning is kept for streams that are not runs. */
export const RunId = identifier('run id')
  .refine((id) => !id.startsWith('~'), 'a run id may not begin with "~"')
  .brand<'RunId'>();
export type RunId = z.infer<typeof RunId>;

export const Tenant = identifier('tenant').brand<'Tenant'>();
export type Tenant = z.infer<typeof Tenant>;
export const DEFAULT_TENANT = Tenant.parse('default');

/** A cursor: `7`, or `7.2`, `7.2.1` inside parallel groups. Comes from position, never from content. */
export const Step = z
  .string()
  .max(60, 'step is longer than 60 characters')
  .regex(/^[1-9]\d{0,6}(\.[1-9]\d{0,6}){0,7}$/, 'step is not a cursor such as "3" or "3.1"')
  .brand<'Step'>();
export type Step = z.infer<typeof Step>;

/** The step of an effect: a cursor of its run, or `3~1`, the first part of what answers the effect at step 3. No agent can name the latter. */
export const EffectStep = z
  .string()
  .max(70, 'step is longer than 70 characters')
  .regex(/^[1-9]\d{0,6}(\.[1-9]\d{0,6}){0,7}(~[1-9]\d{0,3})?$/, 'step is not a cursor such as "3" or "3.1", nor a compensation such as "3~1"')
  .brand<'Step'>();
export const compensationStep = (of: Step, part: number): Step => EffectStep.parse(`${of}~${part}`);
/** The effect that a step answers, and the how-manieth part of the answer it is; null for a step of an agent's own. */
export function answeredBy(step: Step): { readonly of: Step; readonly part: number } | null {
  const [of, part] = step.split('~');
  return of === undefined || part === undefined ? null : { of: of as Step, part: Number(part) };
}
/** Whether a step was allotted after another one, in that one's own scope or in branches begun there since. */
export function isAfter(step: Step, to: Step): boolean {
  const [mine, its] = [step.split('.').map(Number), to.split('.').map(Number)];
  const last = its.length - 1;
  return its.every((n, depth) => (depth === last ? (mine[depth] ?? 0) > n : mine[depth] === n));
}

const NAME = /^[A-Za-z][A-Za-z0-9_.:-]{0,99}$/;
export const Name = z.string().regex(NAME, 'a name begins with a letter and has at most 100 of A-Z a-z 0-9 _ . : -');
export const Version = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.+-]{0,49}$/, 'a version has at most 50 of A-Z a-z 0-9 _ . + -');
/** A named group of workers that is deployed and scaled together; part of topic names. */
export const Pool = z
  .string()
  .regex(/^[a-z0-9][a-z0-9-]{0,49}$/, 'a pool has at most 50 of a-z 0-9 -')
  .brand<'Pool'>();
export type Pool = z.infer<typeof Pool>;
export const DEFAULT_POOL = Pool.parse('default');

export const WorkerId = identifier('worker id').brand<'WorkerId'>();
export type WorkerId = z.infer<typeof WorkerId>;

const hex64 = z.string().regex(/^[0-9a-f]{64}$/, 'not a SHA-256 in lower-case hex');
export const OperationKey = hex64.brand<'OperationKey'>();
export type OperationKey = z.infer<typeof OperationKey>;
export const Digest = hex64.brand<'Digest'>();
export type Digest = z.infer<typeof Digest>;

/** Rises by one whenever a run changes hands. Starts at 1. */
export const Fence = z.number().int().min(1).brand<'Fence'>();
export type Fence = z.infer<typeof Fence>;
/** The how-manieth try at an effect, from 1. With the operation key it names the attempt. */
export const Attempt = z.number().int().min(1).max(1000);
export type Attempt = z.infer<typeof Attempt>;

/** The last instant of JavaScript's dates, in the year 275760: a later one has no ISO form. */
const DATE_MAX = 8_640_000_000_000_000;
/** The last instant that anybody may name: of the year 9999, where RFC 3339 ends. What is computed from it and lengths of time has an ISO form still. */
export const INSTANT_MAX = Date.UTC(10_000, 0) - 1;
/** The longest time that anybody may name: 100 years. */
export const DURATION_MAX_MS = 36_525 * 86_400_000;

/** Epoch milliseconds, UTC, as they stand on record. Readers take what was recorded before there were limits. */
export const Instant = z.number().int().nonnegative();
export type Instant = z.infer<typeof Instant>;
/** Epoch milliseconds, UTC, as somebody from outside names them. */
export const NamedInstant = Instant.max(INSTANT_MAX, 'an instant lies beyond the year 9999: give epoch milliseconds, or no deadline');
/** An instant for people and headers: RFC 3339, UTC, milliseconds. One that no date can hold is shown as the nearest that it can. */
export const isoTime = (at: Instant): string => new Date(Math.min(Math.max(at, -DATE_MAX), DATE_MAX)).toISOString();
/** A length of time in milliseconds. */
export const DurationMs = z.number().int().nonnegative().max(DURATION_MAX_MS, 'a length of time is more than 100 years, in milliseconds');

export const Named = z.object({ name: Name, version: Version });
export type Named = z.infer<typeof Named>;
