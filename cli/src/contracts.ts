import { contractMessages, contractWarnings, decodeHeaders, decoder, DEFAULT_RETRY, parseJson, Revalidation, topics, type AgentContract, type ToolContract } from '@holdfast/protocol';
import { tail } from '@holdfast/runtime/kafka';

/** One line of a contract, and whence it is known: the declaration, the default that holds without one, or the test that shows it. */
export interface Line {
  readonly line: string;
  readonly says: string;
  readonly from: string;
  /** True where an irreversible tool has to say something and doesn't. */
  readonly missing: boolean;
}

export interface Contracts {
  readonly tools: readonly ToolContract[];
  readonly agents: readonly AgentContract[];
}

const decode = decoder(contractMessages);

/** The latest declaration of each tool and agent. */
export async function readContracts(brokers: readonly string[]): Promise<Contracts> {
  const tools = new Map<string, ToolContract>();
  const agents = new Map<string, AgentContract>();
  const reader = await tail({
    brokers,
    topics: [topics.contracts],
    from: 'beginning',
    onRecord: (record) => {
      const envelope = decodeHeaders(record.headers, record.key, record.time);
      const parsed = parseJson(record.value ?? '');
      if (envelope === undefined || !parsed.ok) return;
      const decoded = decode(envelope.type, parsed.value);
      if (!decoded.ok) return;
      const { message } = decoded;
      const name = nameOf(message.data);
      if (message.type === 'ToolDeclared') tools.set(name, message.data);
      else agents.set(name, message.data);
    },
  });
  try {
    await reader.caughtUp;
  } finally {
    await reader.close();
  }
  const sorted = <T extends { name: string; version: string }>(found: Map<string, T>): T[] => [...found.values()].sort((a, b) => nameOf(a).localeCompare(nameOf(b)));
  return { tools: sorted(tools), agents: sorted(agents) };
}

export const nameOf = ({ name, version }: { readonly name: string; readonly version: string }): string => `${name}@${version}`;

/** A tool's recovery contract, line by line. */
export function toolLines(tool: ToolContract): Line[] {
  const risky = tool.effect === 'irreversible';
  const declared = (line: string, says: string): Line => ({ line, says, from: 'declared', missing: false });
  const byDefault = (line: string, says: string): Line => ({ line, says, from: 'default', missing: false });
  const shown = (line: string, says: string, test: string): Line => ({ line, says, from: test, missing: false });
  const either = (line: string, says: string | undefined, otherwise: string): Line => (says === undefined ? byDefault(line, otherwise) : declared(line, says));
  const { probe, owner, retry } = tool;
  const provable = probe !== null && (probe.sealing || tool.settleDelayMs !== null);
  return [
    declared('effect class', tool.effect),
    declared('key and scope', tool.keyScope === 'target' ? 'one key for one business thing, whoever asks' : 'one key for one step of one run'),
    either('material arguments', tool.material?.join(', '), 'all'),
    declared('timeout', `${tool.timeoutMs} ms for one attempt, after at most ${tool.queueMs} ms in the queue`),
    declared('retries', `${retry.attemptsMax} attempts, from ${retry.initialMs} to ${retry.maxMs} ms apart${retry.elapsedMaxMs === undefined ? '' : `, none begins later than ${retry.elapsedMaxMs} ms after the first`}${risky ? '; only those known not to have applied anything' : ''}${JSON.stringify(retry) === JSON.stringify(DEFAULT_RETRY) ? ' (the default)' : ''}`),
    { line: 'unknown handling', says: risky ? 'a case; no attempt without evidence' : 'tried again under its key, then a case', from: 'services/ledger/test/recovery-policy.spec.ts', missing: false },
    { line: 'owner of unknowns', says: owner ?? 'nobody', from: owner === null ? 'not declared' : 'declared', missing: risky && owner === null },
    { line: 'probe', says: probe === null ? 'none: only a person settles it' : probe.sealing ? 'seals what it does not find' : `reads; "not found" proves it ${tool.settleDelayMs === null ? 'never' : `${tool.settleDelayMs} ms after the last moment`}`, from: probe === null ? 'not declared' : 'declared', missing: risky && !provable && (probe !== null || owner === null) },
    either('fallback', tool.fallback && nameOf(tool.fallback), 'none'),
    shown('compensation and its authority', 'none declared: what it did stands; a request for it is recorded', 'services/orchestrator/test/admission.spec.ts'),
    shown('cancellation', 'nothing more is sent; what is under way ends and is recorded', 'services/ledger/test/stopped.spec.ts'),
    either('approval', tool.approval && `by ${tool.approval.approvers.join(' or ')}, for exactly its arguments${tool.approval.fourEyes ? ', not by who asked' : ''}`, 'not needed'),
    shown('evidence', 'the tool’s receipt, a probe’s answer, or a person’s statement', 'services/reconciliation/test/case.spec.ts'),
    either('limits', tool.concurrencyMax === undefined ? undefined : `${tool.concurrencyMax} attempts at once, over all runs`, 'none but its circuit'),
  ];
}

/** An agent's resume contract, line by line. */
export function agentLines(agent: AgentContract): Line[] {
  const shown = (line: string, says: string, test: string): Line => ({ line, says, from: test, missing: false });
  return [
    { line: 'versions', says: agent.compatibleWith.length === 0 ? 'its own alone' : `its own, and ${agent.compatibleWith.join(', ')}`, from: 'declared', missing: false },
    shown('what is revalidated', Object.keys(Revalidation.shape).join(', '), 'services/orchestrator/test/revalidate.spec.ts'),
    { line: 'what needs a person', says: Object.entries(agent.resume ?? {}).flatMap(([point, of]) => (of.onChange === 'ask' ? [point] : [])).join(', ') || 'nothing that is revalidated', from: agent.resume === undefined ? 'default' : 'declared', missing: false },
    shown('fence', 'whoever carries an older one is refused', 'services/orchestrator/test/run.spec.ts'),
    shown('waits', 'each ends: by what it waits for, or at its deadline', 'services/orchestrator/test/waiting.spec.ts'),
    shown('deadline', 'set with the start; the action is too', 'services/orchestrator/test/waiting.spec.ts'),
    shown('who decides', 'a person, where its history does not fit its code (quarantine)', 'services/orchestrator/test/waiting.spec.ts'),
  ];
}

/** What is wrong with a tool's contract, in words; empty where nothing is. */
export const problems = (tool: ToolContract): string[] => [...contractWarnings(tool), ...toolLines(tool).flatMap(({ line, says, missing }) => (missing ? [`tool ${nameOf(tool)} is irreversible and lacks the line "${line}" (${says})`] : []))];
