import { contractKey, contractMessages, decodeHeaders, decoder, parseJson, type AgentContract, type Named, type ToolContract } from '@holdfast/protocol';
import type { LogRecord } from '../ports.js';

/** The contracts that workers have declared, as this process has read them. */
export interface ContractBook {
  tool(named: Named): ToolContract | undefined;
  agent(named: Named): AgentContract | undefined;
  /** Reads the topic to its present end; what was declared before the call is known after it. */
  catchUp(): Promise<void>;
  close(): Promise<void>;
}

export interface ContractSource {
  /** Delivers the topic from its beginning, for as long as it is open. */
  open(onRecord: (record: LogRecord) => void): Promise<{ close(): Promise<void>; caughtUp: Promise<void> }>;
  /** Next offset of each lane. */
  ends(): Promise<Map<number, number>>;
}

const decode = decoder(contractMessages);

/** Opens the book and reads all of the topic before it returns. */
export async function openContractBook(source: ContractSource): Promise<ContractBook> {
  const tools = new Map<string, ToolContract>();
  const agents = new Map<string, AgentContract>();
  const next = new Map<number, number>();
  const waiters: (() => void)[] = [];
  /** What was read last under each key: workers declare the same again whenever they start. */
  const texts = new Map<string, string | null>();

  const reader = await source.open((record) => {
    next.set(record.lane, record.offset + 1);
    if (record.key === null || record.value === null || texts.get(record.key) !== record.value) read(record);
    if (record.key !== null) texts.set(record.key, record.value);
    for (const wake of waiters.splice(0)) wake();
  });
  await reader.caughtUp;

  function read(record: LogRecord): void {
    const envelope = decodeHeaders(record.headers, record.key, record.time);
    const parsed = record.value === null ? undefined : parseJson(record.value);
    if (envelope !== undefined && parsed?.ok === true) {
      const decoded = decode(envelope.type, parsed.value);
      // A contract that can't be read is as good as none: its tool stays unknown, and intents for it are refused by name.
      if (decoded.ok) note(decoded.message);
    }
  }

  function note(message: { type: 'ToolDeclared'; data: ToolContract } | { type: 'AgentDeclared'; data: AgentContract }): void {
    if (message.type === 'AgentDeclared') {
      agents.set(contractKey('agent', message.data), message.data);
      return;
    }
    const key = contractKey('tool', message.data);
    const known = tools.get(key);
    // A contract is immutable for its version; only where its tool lives may change.
    tools.set(key, known === undefined ? message.data : { ...known, pool: message.data.pool });
  }

  return {
    tool: (named) => tools.get(contractKey('tool', named)),
    agent: (named) => agents.get(contractKey('agent', named)),
    async catchUp() {
      const ends = await source.ends();
      const behind = (): boolean => [...ends].some(([lane, end]) => (next.get(lane) ?? 0) < end);
      while (behind()) await new Promise<void>((resolve) => waiters.push(resolve));
    },
    close: () => reader.close(),
  };
}
