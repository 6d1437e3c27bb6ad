/** Where the key is: in this tab's session storage. It goes when the tab is closed, and no other tab sees it. */
const PLACE = 'holdfast.key';

type Listener = (why: string | null) => void;
const listeners = new Set<Listener>();

export const readKey = (): string | null => globalThis.sessionStorage?.getItem(PLACE) ?? null;
export const keepKey = (key: string): void => sessionStorage.setItem(PLACE, key);

/** Forgets the key, and says why to whoever shows pages. */
export function tellSignedOut(why: string | null): void {
  sessionStorage.removeItem(PLACE);
  for (const listener of listeners) listener(why);
}

export function onSignedOut(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}
