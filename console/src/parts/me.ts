import { createContext, useContext } from 'react';
import type { Principal } from '../api/client.js';

export const MeContext = createContext<Principal | null>(null);

/** Who is signed in. */
export function useMe(): Principal {
  const me = useContext(MeContext);
  if (me === null) throw new Error('nobody is signed in');
  return me;
}

/** Whether it is worth showing a button; the gateway decides. */
export const may = ({ roles }: Pick<Principal, 'roles'>, role: string): boolean => roles.includes(role) || roles.includes('admin');
