import { brakeKey, BrakeReleased, BrakeSet, type BrakeTarget, type Instant, type Json, type MessageOf, type runMessages, type Told } from '@holdfast/protocol';

export type BrakeEvent = Extract<MessageOf<(typeof runMessages)[number]>, { type: 'BrakeSet' | 'BrakeReleased' }>;

/** What one lane decided last of one brake. */
export interface BrakeView {
  readonly name: string;
  readonly target: BrakeTarget;
  readonly isSet: boolean;
  readonly by: string;
  readonly reason: string | null;
  readonly command: string;
  readonly at: Instant;
}

export function brakeOf({ type, data }: BrakeEvent): BrakeView {
  const { target, by, command, at } = data;
  return { name: brakeKey(target), target, isSet: type === 'BrakeSet', by: by.name, reason: type === 'BrakeSet' ? data.reason : null, command, at };
}

/** The event that it shows, but for the roles of who decided. */
export const eventOf = ({ target, isSet, by: name, reason, command, at }: BrakeView): Told => ({
  type: isSet ? BrakeSet.type : BrakeReleased.type,
  data: { target: target as Json, by: { name, roles: [] }, command, at, ...(reason === null ? {} : { reason }) },
});

/** Whose brakes a principal may see and set: its own tenant's; those of tools and agents are the deployment's. */
export const isOfTenant = (target: BrakeTarget, tenant: string): boolean => target.kind !== 'tenant' || target.name === tenant;

/** What a brake's name says, such as `tool:refund@2` or `tenant:acme`; null where it is none. */
export function parseBrakeName(text: string): { readonly kind: string; readonly name: string; readonly version?: string } | null {
  const [, kind, rest] = /^(tool|agent|tenant):(.+)$/s.exec(text) ?? [];
  if (kind === undefined || rest === undefined) return null;
  const at = kind === 'tenant' ? -1 : rest.lastIndexOf('@');
  return at < 0 ? { kind, name: rest } : { kind, name: rest.slice(0, at), version: rest.slice(at + 1) };
}
