import { ArgumentsReported, type AskArguments, type Json, type Message, type MessageOf, type RunId, type Tenant, type WorkerId } from '@holdfast/protocol';
import type { ToolDefinition } from '../define/tool.js';
import { toJson } from '../define/json.js';
import { clipped, messageOf } from '../errors.js';
import { parse } from './result.js';

export interface ArguingParts {
  readonly worker: WorkerId;
  hosted(name: string, version: string): ToolDefinition | undefined;
  /** Writes to `tool.results`. Never rejects. */
  send(run: RunId, tenant: Tenant, message: Message): Promise<void>;
}

/** One question of the compensation service. */
export interface ArgumentsTask {
  readonly run: RunId;
  readonly tenant: Tenant;
  readonly data: MessageOf<typeof AskArguments>['data'];
}

type Answer = MessageOf<typeof ArgumentsReported>['data']['answer'];

/** Says how an effect is answered, by the code of the tool that did it. Fires nothing, and may be asked twice. */
export async function argue({ run, tenant, data }: ArgumentsTask, parts: ArguingParts): Promise<void> {
  const { step, key, ask } = data;
  const answer = await compute(data, parts).catch((error: unknown): Answer => ({ status: 'failed', message: clipped(messageOf(error), 2000) }));
  await parts.send(run, tenant, ArgumentsReported({ step, key, ask, answer, worker: parts.worker }));
}

async function compute({ tool: { name, version }, args, result }: ArgumentsTask['data'], { worker, hosted }: ArguingParts): Promise<Answer> {
  const tool = hosted(name, version);
  const how = tool?.compensate;
  if (tool === undefined || how === undefined || how === null) return { status: 'failed', message: `worker ${worker} does not host ${name}@${version} with a compensation` };
  if (typeof how.args !== 'function') return { status: 'failed', message: `the arguments of what answers ${name}@${version} stand in its contract` };
  if (!('value' in result)) return { status: 'failed', message: 'what the effect came to is not kept in its event' };
  const [called, came] = await Promise.all([parse(tool.input, args), parse(tool.output, result.value)]);
  // A result that doesn't fit is still what the effect came to.
  const made: unknown = how.args(called.success ? called.data : args, came.success ? came.data : result.value);
  return { status: 'known', args: toJson(made, `the arguments of what answers ${name}`).value as Json };
}
