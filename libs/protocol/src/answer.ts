import type { SignalRun } from './intent.js';
import type { Json } from './json.js';
import { canonicalJson } from './keys.js';
import type { MessageOf, MessageType } from './message.js';
import { brakeKey, BrakeTarget, type operatorMessages } from './operator.js';
import { CompensationDecided, PlanCommandRefused, PlanOpened, PlanWidened, type PlanCause } from './plan.js';
import { CaseAssigned, CaseCommandRefused, CaseSettled } from './reconciliation.js';
import { ApprovalDecided, BrakeReleased, BrakeSet, InputRefused, RunCancelRequested, RunForked, RunPaused, RunUnpaused, RunUnquarantined, SignalReceived } from './run.js';

/** What is asked under an id of the asker's choosing, and answered by one event, which carries that id. */
export type Asking = MessageOf<(typeof operatorMessages)[number] | typeof SignalRun>;
type Asked<Type extends Asking['type']> = Extract<Asking, { readonly type: Type }>['data'];

/** An event as it was read. */
export interface Told {
  readonly type: string;
  readonly data: { readonly [member: string]: Json };
}

/** An event that a message may lead to. `differing`: members of it that would read otherwise, had it answered this one. */
interface Way<Data> {
  readonly type: string;
  readonly differing: (asked: Data, told: Told['data']) => readonly string[];
}

type Members<Data> = { readonly [Member in keyof Data]?: Data[Member] | undefined };

/** `as`: what an event that answers holds of what was asked. */
function to<Data, Type extends string, Held extends object>(event: MessageType<Type, Held>, as: (asked: Data, told: Held) => Members<Held>): Way<Data> {
  return {
    type: event.type,
    differing: (asked, data) => {
      const told = event.schema.safeParse(data);
      if (!told.success) return told.error.issues.map(({ path }) => String(path[0]));
      const held: Partial<Record<string, unknown>> = { ...told.data };
      return Object.entries(as(asked, told.data)).flatMap(([member, wanted]) => (isSame(wanted, held[member]) ? [] : [member]));
    },
  };
}

const isSame = (one: unknown, other: unknown): boolean => (one === undefined || other === undefined ? one === other : canonicalJson(one as Json) === canonicalJson(other as Json));

const DECIDED = { approve: 'approved', reject: 'rejected' } as const;
const refused = (input: Asking['type']): Way<unknown> => to(InputRefused, () => ({ input }));
const caseRefused: Way<Asked<'AssignCase' | 'ResolveCase'>> = to(CaseCommandRefused, ({ step, attempt }) => ({ step, attempt }));
const planned = ({ reason, steps, amount }: Asked<'CompensateRun'>, { cause }: { readonly cause: PlanCause }) => ({
  cause: { ...cause, message: reason },
  scope: steps === undefined ? { kind: 'run' as const } : { kind: 'steps' as const, steps, ...(amount === undefined ? {} : { amount }) },
});

/** Who asks is not compared: what was decided holds, whoever asks again, and says who decided it. */
const LEADS_TO: { readonly [Type in Asking['type']]: readonly Way<Asked<Type>>[] } = {
  SignalRun: [to(SignalReceived, ({ name, payload }) => ({ name, payload })), refused('SignalRun')],
  CancelRun: [to(RunCancelRequested, ({ reason, scope, manner, compensate }) => ({ reason, scope, manner, compensate })), refused('CancelRun')],
  PauseRun: [to(RunPaused, ({ reason }) => ({ reason })), refused('PauseRun')],
  UnpauseRun: [to(RunUnpaused, () => ({})), refused('UnpauseRun')],
  UnquarantineRun: [to(RunUnquarantined, ({ reason }) => ({ reason })), refused('UnquarantineRun')],
  // A retry begins where the run had failed.
  ForkRun: [to(RunForked, ({ run, from, input }, told) => ({ run, from: from ?? told.from, input: input === undefined ? undefined : { value: input } })), refused('ForkRun')],
  DecideApproval: [
    to(ApprovalDecided, ({ step, decision, feedback, expiresAt }) => ({ step, decision: DECIDED[decision], feedback, expiresAt })),
    to(InputRefused, ({ step }) => ({ input: 'DecideApproval', step })),
  ],
  SetBrake: [to(BrakeSet, ({ target, reason }) => ({ target, reason })), refused('SetBrake')],
  ReleaseBrake: [to(BrakeReleased, ({ target }) => ({ target })), refused('ReleaseBrake')],
  AssignCase: [to(CaseAssigned, ({ step, attempt, owner }) => ({ step, attempt, owner })), caseRefused],
  ResolveCase: [
    to(CaseSettled, ({ step, attempt, verdict, evidence }, told) => ({
      ...{ step, attempt, evidence: { ...told.evidence, note: evidence } },
      verdict: verdict.status === 'applied' ? { status: 'applied' as const, result: { value: verdict.result } } : verdict,
    })),
    caseRefused,
  ],
  CompensateRun: [to(PlanOpened, planned), to(PlanWidened, planned), to(PlanCommandRefused, ({ steps }, { step }) => ({ step: steps?.find((each) => each === step) }))],
  DecideCompensation: [
    to(CompensationDecided, ({ step, decision, digest, reason }, told) => ({ of: step, decision: DECIDED[decision], digest: digest ?? told.digest, reason })),
    to(PlanCommandRefused, ({ step }) => ({ step })),
  ],
};

/**
 * The id under which somebody asked for what an event says; null when nobody did. A brake leaves its
 * command's id in the runs that it holds: that answers nobody, and they may be asked something under it.
 */
export function askedUnder({ data: { command, signal, id, cause, brake } }: Told): string | null {
  const caused = typeof cause === 'object' && cause !== null && 'command' in cause ? cause['command'] : undefined;
  const name = brake === undefined ? (command ?? caused ?? signal ?? id) : undefined;
  return typeof name === 'string' ? name : null;
}

/**
 * What an event that carries a message's id answers, in words, where it is another message that
 * had this id before; null where it is this one. An id names one message: its owner passes over every other.
 */
export function otherThan(asked: Asking, told: Told): string | null {
  const ways: readonly Way<never>[] = LEADS_TO[asked.type];
  const way = ways.find(({ type }) => type === told.type);
  const differing = way?.differing(asked.data as never, told.data) ?? [];
  return way !== undefined && differing.length === 0 ? null : inWords(told, differing);
}

const WORD_MAX = 80;

function inWords({ type, data }: Told, differing: readonly string[]): string {
  const { input, target, of, step = of, attempt } = data;
  const brake = BrakeTarget.safeParse(target);
  const about = [...(brake.success ? [brakeKey(brake.data)] : []), ...(typeof input === 'string' ? [input] : []), ...(step === undefined ? [] : [`step ${String(step)}`]), ...(attempt === undefined ? [] : [`attempt ${String(attempt)}`])];
  const rest = differing.filter((member) => !['target', 'of', 'step', 'attempt'].includes(member) && !(member === 'input' && about.includes(String(input))));
  const held = rest.map((member) => (data[member] === undefined ? `without ${member}` : `with ${member} ${JSON.stringify(data[member]).slice(0, WORD_MAX)}`));
  return [`${type}${about.length === 0 ? '' : ` of ${about.join(', ')}`}`, ...held].join(', ');
}
