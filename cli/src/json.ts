import type { Json } from '@holdfast/protocol';

/** An object, where `Array.isArray` can't tell a read-only array from one. */
export const isObject = (value: Json): value is { readonly [member: string]: Json } => typeof value === 'object' && value !== null && !Array.isArray(value);
