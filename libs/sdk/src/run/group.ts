import { isA } from '@holdfast/kernel';
import { CallGroup, type Step } from '@holdfast/protocol';
import type { ToolDefinition, ToolReference } from '../define/tool.js';
import { GroupNotAllowed, ValueTooLarge } from '../errors.js';
import { asError } from '../failure.js';
import type { Calls, PreparedCall } from './calls.js';
import { open, type Core } from './core.js';
import type { Entry, GroupReports } from './entry.js';
import { OVERHEAD_BYTES, type Draft, type Progress } from './outgoing.js';

/** All calls of a group travel in one message. */
const GROUP_BYTES_MAX = 240 * 1024;
export const GROUP_CALLS_MAX = 100;

interface Member {
  readonly entry: Entry;
  readonly prepared: PreparedCall;
  readonly tool: ToolDefinition;
}

/**
 * A group that is recorded as one: one intent when every branch has made its call, one report when
 * every call has ended.
 */
export class Group {
  readonly #members = new Map<number, Member>();
  readonly #called = new Set<number>();
  readonly #entries: Entry[] = [];
  #progress: Progress | null = null;
  #broken: Error | null = null;
  #sent = false;

  constructor(
    private readonly core: Core,
    private readonly calls: Calls,
    readonly step: Step,
    private readonly size: number,
  ) {}

  /** The one call of a branch (from 1). Throws GroupNotAllowed, and the typed errors of any call. */
  call(branch: number, step: Step, tool: ToolReference, args: unknown): Promise<unknown> {
    if (this.#called.has(branch)) throw new GroupNotAllowed(`branch ${branch} of the group at step ${this.step} makes a second call (${tool.name}): with checkpoint "group" each branch makes exactly one; leave the option out to record each step`);
    this.#called.add(branch);
    const recorded = this.calls.recorded(step, tool, args);
    if (recorded !== undefined) return recorded.promise;
    if (this.#broken !== null) throw this.#broken;
    const prepared = this.#prepare(tool, args);
    const entry = open(this.core, step, 'call', tool.name);
    this.#entries.push(entry);
    this.#members.set(branch, { entry, ...prepared });
    if (this.#members.size === this.size) this.#send();
    return entry.promise;
  }

  /** A branch is over; without a call the group can't be recorded as one. */
  over(branch: number, error?: unknown): void {
    if (this.#called.has(branch) || this.#sent) return;
    this.#called.add(branch);
    this.#break(isA(error, Error) ? error : new GroupNotAllowed(`branch ${branch} of the group at step ${this.step} ended without a call: with checkpoint "group" each branch makes exactly one`));
  }

  /** The orchestrator refused the group as a whole. False when the code had been told of results already. */
  refused(error: Error): boolean {
    const told = this.#entries.some(({ settlement }) => settlement?.ok === true);
    if (this.#progress?.observed !== undefined) this.core.outgoing.observeAgain(this.#progress.observed);
    for (const entry of this.#entries) this.core.completions.settle(entry, { ok: false, error });
    return !told;
  }

  #whyNot({ name, version, effect, keyScope, approval }: ToolReference): string {
    if (approval !== undefined) return 'tools that need no approval are allowed';
    if (effect === 'irreversible') return 'pure and idempotent effects are allowed, since it may fire again as a whole';
    if (keyScope === 'target') return 'keys of scope "run" are allowed';
    if (this.core.port.hosted(name, version) !== undefined) return 'tools without a limit over all workers (concurrency, targetRemembersKeysFor) are allowed';
    return 'tools that this worker hosts are allowed';
  }

  /** Nothing was sent: every call made so far fails with the same error. */
  #break(error: Error): void {
    if (this.#broken !== null || this.#sent) return;
    this.#broken = error;
    for (const entry of this.#entries) this.core.completions.settle(entry, { ok: false, error });
  }

  #prepare(tool: ToolReference, args: unknown): Omit<Member, 'entry'> {
    try {
      const prepared = this.calls.prepare(tool, args);
      const { local } = prepared;
      if (local === undefined) throw new GroupNotAllowed(`${tool.name}@${tool.version} can't be called in the group at step ${this.step}: with checkpoint "group" only ${this.#whyNot(tool)}`);
      return { prepared, tool: local };
    } catch (error) {
      this.#break(asError(error));
      throw error;
    }
  }

  #send(): void {
    const members = [...this.#members].sort(([a], [b]) => a - b).map(([, member]) => member);
    const bytes = members.reduce((sum, { prepared }) => sum + prepared.bytes + OVERHEAD_BYTES / 2, OVERHEAD_BYTES);
    if (bytes > GROUP_BYTES_MAX) {
      return this.#break(new ValueTooLarge(`the group at step ${this.step}`, Math.ceil(bytes), GROUP_BYTES_MAX, 'make smaller groups, or pass large arguments as artifacts'));
    }
    this.#sent = true;
    this.core.completions.live(() => this.#intend(members, bytes));
  }

  #intend(members: readonly Member[], bytes: number): void {
    if (members.some(({ entry }) => entry.lost)) return;
    const reports: GroupReports = { missing: members.length, reported: [] };
    const data = {
      step: this.step,
      calls: members.map(({ entry, prepared: { tool, args, target } }) => ({ step: entry.step, tool, args, ...(target === undefined ? {} : { target }) })),
      fence: this.core.fence,
    };
    const draft: Draft = {
      message: CallGroup(data),
      progress: data,
      bytes,
      onAcknowledged: () => {
        for (const { entry, prepared, tool } of members) this.calls.fireAcknowledged(entry, prepared, tool);
      },
    };
    for (const { entry } of members) {
      entry.group = reports;
      entry.logged = true;
      this.calls.takeOff(entry);
    }
    this.#progress = draft.progress;
    this.core.outgoing.intent(draft);
  }
}
