import { randomUUID } from 'node:crypto';
import { ActAsked, encodeHeaders, topics } from '@holdfast/protocol';
import type { LogWriter } from '@holdfast/runtime';
import type { Call } from '../http/endpoint.js';

export interface Act {
  readonly act: string;
  readonly tenant: string;
  readonly by: { readonly id: string; readonly name: string; readonly roles: readonly string[] };
  readonly about: string;
  readonly command: string | null;
}

const ABOUT_MAX = 4000;

/** Writes who asked for what, before it is carried out. */
export class Audit {
  constructor(
    private readonly writer: LogWriter,
    private readonly source: string,
    private readonly now: () => number,
  ) {}

  /** @throws when the broker doesn't take it: then the act must not be carried out */
  async publish({ act, tenant, by, about, command }: Act): Promise<void> {
    const at = this.now();
    const message = ActAsked({ act, by: { ...by, roles: [...by.roles] }, about: about.slice(0, ABOUT_MAX), command, at });
    const headers = encodeHeaders({ id: randomUUID(), type: message.type, source: this.source, subject: tenant, time: at, tenant });
    await this.writer.publish([{ topic: topics.auditEvents, key: tenant, headers, value: JSON.stringify(message.data) }]);
  }

  tell(act: string, about: string, { principal, command }: Call): Promise<void> {
    const { id, name, roles, tenant } = principal;
    return this.publish({ act, tenant, by: { id, name, roles }, about, command });
  }
}
