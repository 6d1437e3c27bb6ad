import { Controller, Inject } from '@nestjs/common';
import { CancelRun, ForkRun, PauseRun, RunId, SignalRun, Step, topics, UnpauseRun, UnquarantineRun, type Asking, type Json } from '@holdfast/protocol';
import { z } from 'zod';
import { endpoint, Serves, type Answer, type Call, type CallOf } from '../http/endpoint.js';
import { Problem } from '../http/problem.js';
import { decided } from './cases.js';
import { Commands, operatorOf } from './commands.js';
import { Queries } from './queries.js';
import { locationOf } from './runs.js';
import { AnyJson, Decided, Pending, RunParams, WaitMs } from './shapes.js';

const query = z.object({ waitMs: WaitMs });
const answers = { 200: { description: 'It is decided.', schema: Decided }, 202: { description: 'Nothing was decided in time; look at `location`.', schema: Pending } };
const shared = { method: 'post', tag: 'runs', params: RunParams, query, answers, problems: ['refused'] } as const;
const reason = z.string().min(1).max(2000);

export const signalRun = endpoint({
  ...shared,
  ...{ id: 'signalRun', path: '/v1/runs/{run}/signal', may: 'agent', summary: 'Tell a run something that it may wait for; kept until a wait of that name takes it', act: 'run.signal' },
  body: z.strictObject({ name: z.string().min(1).max(200), payload: AnyJson.optional().default(null) }).meta({ id: 'SignalRun' }),
});
export const cancelRun = endpoint({
  ...shared,
  ...{ id: 'cancelRun', path: '/v1/runs/{run}/cancel', may: 'operator', summary: 'Cancel a run: nothing new of it is sent', act: 'run.cancel' },
  body: z.strictObject({ reason, scope: z.enum(['run', 'tree']).default('run'), manner: z.enum(['graceful', 'immediate']).default('graceful') }).meta({ id: 'CancelRun' }),
});
export const pauseRun = endpoint({
  ...shared,
  ...{ id: 'pauseRun', path: '/v1/runs/{run}/pause', may: 'operator', summary: 'Hold a run still', act: 'run.pause' },
  body: z.strictObject({ reason }).meta({ id: 'PauseRun' }),
});
export const resumeRun = endpoint({ ...shared, ...{ id: 'resumeRun', path: '/v1/runs/{run}/resume', may: 'operator', summary: 'Let a paused run go on', act: 'run.resume' } });
export const releaseRun = endpoint({
  ...shared,
  ...{ id: 'releaseRun', path: '/v1/runs/{run}/release', may: 'operator', summary: 'Let a quarantined run go on, having looked into it', act: 'run.release' },
  body: z.strictObject({ reason }).meta({ id: 'ReleaseRun' }),
});

const anew = z.strictObject({ runId: RunId.optional().meta({ description: 'the new run’s id; made up when absent' }), input: AnyJson.optional().meta({ description: 'instead of the origin’s' }) });
export const forkRun = endpoint({
  ...shared,
  ...{ id: 'forkRun', path: '/v1/runs/{run}/fork', may: 'operator', summary: 'Begin a new run with what this one recorded before a step', description: 'That is replayed, never fired.', act: 'run.fork' },
  body: z.strictObject({ ...anew.shape, from: Step.meta({ description: 'the first step that the new run does itself' }) }).meta({ id: 'ForkRun' }),
});
export const retryRun = endpoint({
  ...shared,
  ...{ id: 'retryRun', path: '/v1/runs/{run}/retry', may: 'operator', summary: 'The same, from the step that failed on', act: 'run.retry' },
  body: anew.meta({ id: 'RetryRun' }),
});

type RunCall = Pick<Call<z.output<typeof RunParams>, { waitMs: number }>, 'params' | 'query' | 'principal' | 'command' | 'signal'>;

/** What people and programs do to a run under way. */
@Controller()
export class ActsController {
  constructor(
    @Inject(Queries) private readonly queries: Queries,
    @Inject(Commands) private readonly commands: Commands,
  ) {}

  @Serves(signalRun)
  async tell(call: CallOf<typeof signalRun>): Promise<Answer> {
    const { params: { run }, principal, command: id, query: { waitMs }, signal, body } = call;
    await this.queries.runOr404(principal.tenant, run);
    const message = SignalRun({ signal: id, name: body.name, payload: body.payload as Json });
    const answer = await this.commands.once({ topic: topics.agentIntents, run, principal, id, message, waitMs, signal });
    return decided(answer, id, locationOf(run));
  }

  @Serves(cancelRun)
  cancel(call: CallOf<typeof cancelRun>): Promise<Answer> {
    return this.#operate(call, CancelRun({ command: call.command, by: operatorOf(call.principal), ...call.body }));
  }

  @Serves(pauseRun)
  pause(call: CallOf<typeof pauseRun>): Promise<Answer> {
    return this.#operate(call, PauseRun({ command: call.command, by: operatorOf(call.principal), reason: call.body.reason }));
  }

  @Serves(resumeRun)
  resume(call: CallOf<typeof resumeRun>): Promise<Answer> {
    return this.#operate(call, UnpauseRun({ command: call.command, by: operatorOf(call.principal) }));
  }

  @Serves(releaseRun)
  release(call: CallOf<typeof releaseRun>): Promise<Answer> {
    return this.#operate(call, UnquarantineRun({ command: call.command, by: operatorOf(call.principal), reason: call.body.reason }));
  }

  @Serves(forkRun)
  fork(call: CallOf<typeof forkRun>): Promise<Answer> {
    return this.#fork(call, call.body);
  }

  @Serves(retryRun)
  retry(call: CallOf<typeof retryRun>): Promise<Answer> {
    return this.#fork(call, call.body);
  }

  async #fork(call: RunCall, { runId, from, input }: { runId?: RunId | undefined; from?: Step | undefined; input?: unknown }): Promise<Answer> {
    const { params: { run }, principal, command } = call;
    const id = runId ?? RunId.parse(`${run.slice(0, 150)}~${command.slice(0, 16)}`);
    const owner = await this.queries.ownerOf(id);
    // Ids are one space for all tenants; whose it is, is nobody else's business. One's own may be this very fork, asked for again.
    if (owner !== null && owner !== principal.tenant) throw new Problem('refused', `run id ${id} is taken; choose another, or none`, { extra: { reason: 'run_id_taken' } });
    return this.#operate(call, ForkRun({ command, by: operatorOf(principal), run: id, ...(from === undefined ? {} : { from }), ...(input === undefined ? {} : { input: input as Json }) }));
  }

  async #operate({ params: { run }, principal, command: id, query: { waitMs }, signal }: RunCall, message: Asking): Promise<Answer> {
    await this.queries.runOr404(principal.tenant, run);
    return decided(await this.commands.operate({ run, principal, id, message, waitMs, signal }), id, locationOf(run));
  }
}
