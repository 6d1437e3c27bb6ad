import { CancelRun, DecideApproval, DecideCompensation, encodeHeaders, RunId, SignalRun, Step, topics, type Json, type Message, type Operator } from '@holdfast/protocol';
import type { Cluster } from '../sim/cluster.js';
import { SimProcess } from '../sim/process.js';

/** What a person or another program says to a run. */
export type Word =
  | { readonly say: 'signal'; readonly name: string; readonly payload: Json }
  | { readonly say: 'approve' | 'reject'; readonly step: string; readonly by: Operator }
  | { readonly say: 'cancel'; readonly reason: string; readonly by: Operator };

const AGAIN_MS = 200;

/** Writes it, until Kafka has acknowledged it. */
export function sayTo(cluster: Cluster, run: string, word: Word, number: number): void {
  const client = new SimProcess(cluster.core, 'client', `person-${number}`);
  const writer = cluster.log.writer(client);
  const message = messageOf(cluster, run, word, `${word.say} ${number}`);
  const publish = (): void => {
    const headers = encodeHeaders({ id: client.name, type: message.type, source: client.name, subject: RunId.parse(run), time: client.clock.now(), tenant: 'default' });
    const topic = word.say === 'signal' ? topics.agentIntents : topics.operatorCommands;
    writer.publish([{ topic, key: run, headers, value: JSON.stringify(message.data) }]).catch(() => void client.clock.after(AGAIN_MS, publish));
  };
  publish();
}

function messageOf(cluster: Cluster, run: string, word: Word, command: string): Message {
  switch (word.say) {
    case 'signal':
      return SignalRun({ signal: command, name: word.name, payload: word.payload });
    case 'cancel':
      return CancelRun({ command, by: word.by, reason: word.reason, scope: 'run', manner: 'graceful' });
    case 'approve':
    case 'reject': {
      const step = Step.parse(word.step);
      const answer = askedFor(cluster, run, word.step);
      return answer === null ? DecideApproval({ command, by: word.by, step, decision: word.say }) : DecideCompensation({ command, by: word.by, step, decision: word.say, digest: answer });
    }
  }
}

/** The digest of the answer to a step's effect, where somebody has to decide on one. */
function askedFor(cluster: Cluster, run: string, step: string): Parameters<typeof DecideCompensation>[0]['digest'] | null {
  const asked = cluster.log.topic(topics.compensationEvents).filter(({ key, headers }) => key === run && headers['ce_type'] === 'CompensationApprovalAsked');
  const shown = asked.map(({ value }) => JSON.parse(value ?? '') as { of: string; digest: Parameters<typeof DecideCompensation>[0]['digest'] });
  return shown.findLast(({ of }) => of === step)?.digest ?? null;
}
