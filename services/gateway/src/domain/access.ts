import { Operator } from '@holdfast/protocol';
import { z } from 'zod';

/** Roles that routes ask for. A principal may have others too: the services judge those (`verdictRole`, `approvers`). */
export const ROLES = ['viewer', 'agent', 'approver', 'operator', 'admin'] as const;
export type Role = (typeof ROLES)[number];

/** Who asks. */
export interface Principal {
  /** The key's public part, or the subject of a token. */
  readonly id: string;
  readonly name: string;
  readonly tenant: string;
  readonly roles: readonly string[];
  /** Tools that it may decide about; null: all. */
  readonly tools: readonly string[] | null;
  /** Largest amount that it may decide about; null: no limit. */
  readonly amountMax: number | null;
}

/** Whether a route asks for it. Others count only where a contract does. */
export const isRole = (role: string): role is Role => (ROLES as readonly string[]).includes(role);

const plain = (text: string): boolean => text.isWellFormed() && !/\p{Cc}/u.test(text);
/** Of a key: its commands are signed with it, and those that nobody's name is under aren't decided. */
export const KeyName = Operator.shape.name.refine((name) => name.trim() !== '', 'is blank').refine(plain, 'holds a control character');
export const KeyRoles = z.array(Operator.shape.roles.element.refine(plain, 'holds a control character')).min(1).max(50);

/** `viewer` is in every role, and every role in `admin`; `agent`, `approver` and `operator` don't hold one another. */
export const holds = ({ roles }: Pick<Principal, 'roles'>, wanted: Role): boolean => roles.some((role) => isRole(role) && (wanted === 'viewer' || role === wanted || role === 'admin'));

export interface Matter {
  readonly tool: string;
  /** As the run states it; null where it could and doesn't; absent where the matter has none. */
  readonly amount?: string | null | undefined;
}

/** Why a principal may not decide about a tool's effect; null when it may. */
export function outOfScope({ tools, amountMax }: Pick<Principal, 'tools' | 'amountMax'>, { tool, amount }: Matter): string | null {
  if (tools !== null && !tools.includes(tool)) return `tool ${tool} is not among those of this key (${tools.join(', ')})`;
  if (amountMax === null || amount === undefined) return null;
  // What can't be compared can't be allowed.
  if (amount === null) return `no amount is stated, and this key decides up to ${amountMax}`;
  const value = Number(amount);
  if (amount.trim() === '' || !Number.isFinite(value)) return `amount "${amount}" is no number, and this key decides up to ${amountMax}`;
  return Math.abs(value) > amountMax ? `amount ${amount} is above ${amountMax}, up to which this key decides` : null;
}
