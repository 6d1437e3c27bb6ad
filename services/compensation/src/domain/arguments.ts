import type { ArgumentSource, CompensationContract, Json, OperationKey, Stored } from '@holdfast/protocol';

/** What a compensation's arguments may be made of. */
export interface Material {
  readonly args: Json;
  readonly result: Stored | null;
  readonly key: OperationKey;
}

export type Made = { readonly ok: true; readonly args: Json } | { readonly ok: false; readonly message: string };

type Found = { readonly ok: true; readonly value: Json } | { readonly ok: false };

/** RFC 6901, on a value that was read from JSON. */
function at(value: Json, pointer: string): Found {
  let found: Json | undefined = value;
  for (const part of pointer === '' ? [] : pointer.slice(1).split('/')) {
    const name = part.replaceAll('~1', '/').replaceAll('~0', '~');
    if (Array.isArray(found)) found = /^(0|[1-9]\d*)$/.test(name) ? found[Number(name)] : undefined;
    else if (found !== null && typeof found === 'object' && Object.hasOwn(found, name)) found = (found as { readonly [member: string]: Json })[name];
    else return { ok: false };
    if (found === undefined) return { ok: false };
  }
  return { ok: true, value: found };
}

const inline = (result: Stored | null): Found => (result !== null && 'value' in result ? { ok: true, value: result.value } : { ok: false });

export function valueAt({ from, at: pointer }: { readonly from: 'args' | 'result'; readonly at: string }, { args, result }: Pick<Material, 'args' | 'result'>): Found {
  if (from === 'args') return at(args, pointer);
  const whole = inline(result);
  return whole.ok ? at(whole.value, pointer) : whole;
}

function sourced(source: ArgumentSource, material: Material): Found {
  if ('value' in source) return { ok: true, value: source.value };
  return source.from === 'key' ? { ok: true, value: material.key } : valueAt(source, material);
}

/** The arguments that a contract declares; a member that is not there is named, since a call without it would answer something else. */
export function declared(sources: Readonly<Record<string, ArgumentSource>>, material: Material): Made {
  const args: Record<string, Json> = {};
  for (const [name, source] of Object.entries(sources)) {
    const found = sourced(source, material);
    if (!found.ok) return { ok: false, message: `argument "${name}" can’t be had: ${'at' in source ? `the effect’s ${source.from} ${material.result === null || 'value' in material.result || source.from === 'args' ? `has no ${source.at}` : 'is not kept in its event'}` : 'it has no source'}` };
    args[name] = found.value;
  }
  return { ok: true, args };
}

/** Adds what the contract hands on besides: the version to be found unchanged, and how much is answered. */
export function completed(how: CompensationContract, args: Json, material: Material, amount: number | null): Made {
  const { precondition, partial } = how;
  if (precondition === undefined && partial === undefined) return { ok: true, args };
  if (args === null || typeof args !== 'object' || Array.isArray(args)) return { ok: false, message: 'the contract adds members to the arguments, and they are no object' };
  const whole: Record<string, Json> = { ...(args as { readonly [member: string]: Json }) };
  if (precondition !== undefined) {
    const version = valueAt({ from: 'result', at: precondition.version }, material);
    if (!version.ok) return { ok: false, message: `the effect’s result has no version at ${precondition.version}: what somebody changed since might be overwritten` };
    whole[precondition.as] = version.value;
  }
  if (partial !== undefined && amount !== null) whole[partial.as] = amount;
  return { ok: true, args: whole };
}

/** The whole amount of an effect; null where its contract names none, or the effect has none that is a whole number. */
export function wholeAmount(how: CompensationContract, material: Pick<Material, 'args' | 'result'>): number | null {
  if (how.partial === undefined) return null;
  const found = valueAt(how.partial.amount, material);
  return found.ok && typeof found.value === 'number' && Number.isSafeInteger(found.value) && found.value >= 0 ? found.value : null;
}

/** What remains all the same, as the contract names it; amounts are looked up in what the compensation came to. */
export function residuals(how: CompensationContract, results: readonly (Stored | null)[]): { readonly what: string; readonly amount?: Json }[] {
  return (how.residual ?? []).flatMap(({ what, amount }) =>
    amount === undefined
      ? [{ what }]
      : results.flatMap((result) => {
          const found = valueAt({ from: 'result', at: amount }, { args: null, result });
          return found.ok ? [{ what, amount: found.value }] : [{ what }];
        }),
  );
}
