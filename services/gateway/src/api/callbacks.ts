import { createHash, timingSafeEqual } from 'node:crypto';
import { Controller, Inject } from '@nestjs/common';
import { canonicalJson, DeliverCallback, RunId, Step, topics, type Json } from '@holdfast/protocol';
import { systemClock } from '@holdfast/runtime';
import { z } from 'zod';
import type { Principal } from '../domain/access.js';
import type { WaitView } from '../domain/step-view.js';
import { endpoint, ok, Serves, type Answer, type CallOf } from '../http/endpoint.js';
import { Authentication } from '../http/guard.js';
import { Problem } from '../http/problem.js';
import { Views } from '../views/views.js';
import { Commands } from './commands.js';
import { Queries } from './queries.js';
import { AnyJson } from './shapes.js';

const Taken = z.object({ taken: z.boolean() }).meta({ id: 'CallbackTaken', description: 'false: it is written, and not decided yet' });

export const callback = endpoint({
  ...{ id: 'callback', method: 'post', path: '/v1/callbacks/{run}/{step}/{token}', tag: 'callbacks', may: 'public', summary: 'A third party’s answer to a run that waits for it', description: 'The token says who may; it is good once, for this wait.' },
  params: z.object({ run: RunId, step: Step, token: z.string().regex(/^[A-Za-z0-9_-]{16,500}$/, 'is no token') }),
  body: AnyJson,
  answers: { 200: { description: 'The run has it.', schema: Taken }, 202: { description: 'It is written, and not decided yet.', schema: Taken } },
  problems: ['refused', 'rate-limited'],
});

/** Whoever was given the token may be faster than the read models. Milliseconds. */
const KNOWN_WITHIN_MS = 2000;
const LOOK_MS = 100;
const ANSWER_WITHIN_MS = 10_000;

@Controller()
export class CallbacksController {
  constructor(
    @Inject(Queries) private readonly queries: Queries,
    @Inject(Views) private readonly views: Views,
    @Inject(Commands) private readonly commands: Commands,
    @Inject(Authentication) private readonly authentication: Authentication,
  ) {}

  @Serves(callback)
  async deliver({ params: { run, step, token }, body, command, signal, address }: CallOf<typeof callback>): Promise<Answer> {
    await this.authentication.mayTry(address);
    const payload = body as Json;
    const found = await this.#find(run, step, token, signal);
    if (found === null) {
      await this.authentication.refused(address);
      // The same for a run that there is not, a step that waits for nothing, and a token that is wrong.
      throw new Problem('not-found', 'nothing waits for this answer');
    }
    const { tenant, wait: { end, abandoned } } = found;
    if (end?.status === 'satisfied' && 'value' in end.value && canonicalJson(end.value.value) === canonicalJson(payload)) return ok({ taken: true });
    if (end !== null || abandoned) throw over();
    const principal: Principal = { id: 'callback', name: 'callback', tenant, roles: [], tools: [], amountMax: 0 };
    const answer = await this.commands.ask({
      ...{ topic: topics.agentIntents, run, principal, id: `callback:${command}`, message: DeliverCallback({ step, token, payload }), waitMs: ANSWER_WITHIN_MS, signal },
      answers: ({ type, data }) => data['step'] === step && (type === 'WaitEnded' || type === 'WaitAbandoned' || (type === 'InputRefused' && data['input'] === 'DeliverCallback')),
    });
    if (answer === null) return { status: 202, body: { taken: false } };
    if (answer.type === 'InputRefused') throw new Problem('refused', String(answer.data['message']), { extra: { reason: answer.data['reason'] } });
    const after = (await this.queries.waitOf(run, step))?.wait.end ?? null;
    if (after?.status !== 'satisfied' || !('value' in after.value) || canonicalJson(after.value.value) !== canonicalJson(payload)) throw over();
    return ok({ taken: true });
  }

  async #find(run: string, step: string, token: string, signal: AbortSignal): Promise<{ tenant: string; wait: WaitView } | null> {
    const hash = createHash('sha256').update(token).digest();
    const until = systemClock.now() + KNOWN_WITHIN_MS;
    for (;;) {
      const found = await this.queries.waitOf(run, step);
      if (found !== null) return found.wait.wait.kind === 'callback' && timingSafeEqual(Buffer.from(found.wait.wait.tokenHash, 'hex'), hash) ? found : null;
      if (systemClock.now() >= until || signal.aborted) return null;
      await this.views.news(LOOK_MS, signal);
    }
  }
}

const over = (): Problem => new Problem('refused', 'the run doesn’t wait for it any more: it was answered, or its time was up', { extra: { reason: 'wait_over' } });
