import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { openArtifactStore } from '@holdfast/runtime/artifacts';
import { replayHistory, parseHistory, type AgentDefinition, type Replayed, type RunHistory, type ToolDefinition } from '@holdfast/sdk';
import { readFile } from 'node:fs/promises';
import { CliError } from './failure.js';

const isKind = (value: unknown, kind: string): boolean => typeof value === 'object' && value !== null && 'kind' in value && value.kind === kind;

/**
 * Replays an exported history against the agent that a module exports; its tools are those that the module exports.
 * @throws CliError the module can't be loaded, or has no such agent
 */
export async function replayRun(file: string, module: string, artifacts: string | undefined): Promise<Replayed> {
  const text = await readFile(file, 'utf8').catch(() => {
    throw new CliError(`${file} can't be read`);
  });
  const history = historyIn(file, text);
  const exported = await exportsOf(module);
  const agent = exported.find((value): value is AgentDefinition => isKind(value, 'agent') && (value as AgentDefinition).name === history.agent.name);
  if (agent === undefined) throw new CliError(`${module} exports no agent named ${history.agent.name}`);
  const tools = exported.filter((value): value is ToolDefinition => isKind(value, 'tool'));
  const store = artifacts === undefined ? undefined : await openArtifactStore(artifacts);
  const scope = { tenant: history.tenant, run: history.run };
  return replayHistory(history, agent, { tools, artifacts: store && { put: store.put.bind(store), get: (ref) => store.get(ref, scope) } });
}

function historyIn(file: string, text: string): RunHistory {
  try {
    return parseHistory(JSON.parse(text));
  } catch (error) {
    throw new CliError(`${file} holds no history that \`holdfast runs export\` has written: ${error instanceof Error ? error.message : String(error)}`);
  }
}

async function exportsOf(module: string): Promise<unknown[]> {
  const loaded = (await import(pathToFileURL(path.resolve(module)).href).catch((error: unknown) => {
    throw new CliError(`${module} can't be loaded: ${error instanceof Error ? error.message : String(error)}`);
  })) as Record<string, unknown>;
  return Object.values(loaded).flatMap((value) => (Array.isArray(value) ? (value as unknown[]) : [value]));
}
