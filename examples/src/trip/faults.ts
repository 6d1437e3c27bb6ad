import { z } from 'zod';

/** `fails`: says no, and does nothing. `hangs`: does nothing, and never answers. `late`: does it long after. `silent`: does it, and the answer is lost. */
export const FAULTS = ['fails', 'hangs', 'late', 'silent'] as const;
export const Fault = z.enum(FAULTS);
export type Fault = z.infer<typeof Fault>;

/** How long after its caller has given up a late provider does what it was asked, from the call on. Milliseconds. */
export const LATE_MS = 2500;

/** In the order in which a trip books them. */
export const PROVIDERS = ['flight', 'hotel', 'car', 'payment'] as const;
export type Provider = (typeof PROVIDERS)[number];

/** One trip of the demo, and what goes wrong in it. */
export interface Scenario {
  readonly run: string;
  /** Who does not do as it should, at what, and how. */
  readonly fault: { readonly provider: Provider; readonly what: 'book' | 'cancel'; readonly fault: Fault } | null;
  /** The traveller falls ill after all is booked: everything is to be answered. */
  readonly calledOff: boolean;
}

/** A trip that goes well, one that is called off, and one for every fault of every provider at booking and at cancelling. */
export function scenarios(faults: boolean): Scenario[] {
  const plain: Scenario[] = [
    { run: 'trip-well', fault: null, calledOff: false },
    { run: 'trip-called-off', fault: null, calledOff: true },
  ];
  if (!faults) return plain;
  const each = (what: 'book' | 'cancel'): Scenario[] => PROVIDERS.flatMap((provider) => FAULTS.map((fault) => ({ run: `trip-${provider}-${what}-${fault}`, fault: { provider, what, fault }, calledOff: what === 'cancel' })));
  return [...plain, ...each('book'), ...each('cancel')];
}
