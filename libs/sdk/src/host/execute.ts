import type { ArtifactRef } from '@holdfast/protocol';
import type { ToolDefinition } from '../define/tool.js';
import { RunExecutor } from '../run/index.js';
import type { CallbackSettings } from '../wait/callback.js';
import type { ServedArtifacts } from './artifacts.js';
import type { WorkerLog } from './log.js';
import type { Execute } from './runs.js';

/** Makes the executor of each run that is granted to a worker. */
export function executeWith(tools: readonly ToolDefinition[], artifacts: ServedArtifacts | undefined, log: WorkerLog, callbacks: CallbackSettings = {}): Execute {
  return (grant, agent, port) => {
    const { run, tenant } = grant;
    const own = artifacts === undefined ? undefined : { put: artifacts.put.bind(artifacts), get: (ref: ArtifactRef) => artifacts.get(ref, { tenant, run }) };
    return new RunExecutor({ grant, agent, tools, port, artifacts: own, callbacks, onTrouble: (message) => log.warn(message, { run }) });
  };
}
