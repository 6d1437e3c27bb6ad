import { Controller, Inject } from '@nestjs/common';
import { BrakeTarget, brakeKey, brakeStream, ReleaseBrake, SetBrake, type Asking } from '@holdfast/protocol';
import { z } from 'zod';
import type { Principal } from '../domain/access.js';
import { eventOf, isOfTenant, parseBrakeName, type BrakeView } from '../domain/brake-view.js';
import { endpoint, ok, Serves, type Answer, type Call, type CallOf } from '../http/endpoint.js';
import { Problem } from '../http/problem.js';
import { answering, Commands, operatorOf } from './commands.js';
import { Queries } from './queries.js';
import { iso, Pending, Time, WaitMs } from './shapes.js';

/** Tenant whose operators may hold still what all tenants share. */
export const HOUSE = Symbol('house');

const Brake = z
  .object({
    brake: z.string().meta({ description: 'such as `tool:refund@2`, `agent:desk` or `tenant:acme`' }),
    kind: z.enum(['tool', 'agent', 'tenant']),
    by: z.string(),
    reason: z.string(),
    since: Time,
    lanes: z.number().int().meta({ description: 'lanes that hold it; fewer than `of` only while a command is under way, or was cut off: send it again' }),
    of: z.number().int(),
  })
  .meta({ id: 'Brake' });

const BrakeName = z
  .string()
  .max(300)
  .meta({ description: 'what is held: `tool:NAME`, `tool:NAME@VERSION`, `agent:NAME`, `agent:NAME@VERSION` or `tenant:NAME`, percent-encoded', examples: ['tool:refund@2'] })
  .transform((text, context) => {
    const parsed = BrakeTarget.safeParse(parseBrakeName(text));
    if (parsed.success) return parsed.data;
    context.addIssue({ code: 'custom', message: 'is no brake such as tool:refund@2, agent:desk or tenant:acme' });
    return z.NEVER;
  });

const shared = { method: 'post', tag: 'brakes', may: 'operator', params: z.object({ brake: BrakeName }), query: z.object({ waitMs: WaitMs }), problems: ['refused'] } as const;
const answers = { 200: { description: 'Every lane has decided.', schema: z.object({ command: z.string(), brake: z.string(), lanes: z.number().int() }) }, 202: { description: 'Not every lane has decided in time; look at `location`.', schema: Pending } };

export const listBrakes = endpoint({
  ...{ id: 'listBrakes', method: 'get', path: '/v1/brakes', tag: 'brakes', may: 'viewer', summary: 'What is held still beyond single runs', description: 'Tools and agents are shared by all tenants.' },
  answers: { 200: { description: 'Brakes that are set, by name.', schema: z.object({ items: z.array(Brake) }) } },
});
export const setBrake = endpoint({
  ...{ ...shared, id: 'setBrake', path: '/v1/brakes/{brake}/set', summary: 'Hold a tool, an agent or the tenant still: nothing new of it is sent', act: 'brake.set', answers },
  body: z.strictObject({ reason: z.string().min(1).max(2000) }).meta({ id: 'SetBrake' }),
});
export const releaseBrake = endpoint({ ...{ ...shared, id: 'releaseBrake', path: '/v1/brakes/{brake}/release', summary: 'Let it go', act: 'brake.release', answers } });

type BrakeCall = Pick<Call<{ brake: BrakeTarget }, { waitMs: number }>, 'params' | 'query' | 'principal' | 'command' | 'signal'>;

@Controller()
export class BrakesController {
  constructor(
    @Inject(Queries) private readonly queries: Queries,
    @Inject(Commands) private readonly commands: Commands,
    @Inject('lanes') private readonly lanes: number,
    @Inject(HOUSE) private readonly house: string,
  ) {}

  @Serves(listBrakes)
  async list({ principal }: CallOf<typeof listBrakes>): Promise<Answer> {
    const byName = new Map<string, BrakeView[]>();
    for (const { view } of await this.queries.brakes()) if (isOfTenant(view.target, principal.tenant)) byName.set(view.name, [...(byName.get(view.name) ?? []), view]);
    return ok({ items: [...byName.values()].map((views) => brakeOut(views, this.lanes)) });
  }

  @Serves(setBrake)
  set(call: CallOf<typeof setBrake>): Promise<Answer> {
    const { command, principal, params: { brake: target }, body: { reason } } = call;
    return this.#tell(call, SetBrake({ command, by: operatorOf(principal), target, reason }));
  }

  @Serves(releaseBrake)
  release(call: CallOf<typeof releaseBrake>): Promise<Answer> {
    const { command, principal, params: { brake: target } } = call;
    return this.#tell(call, ReleaseBrake({ command, by: operatorOf(principal), target }));
  }

  /** Each lane decides for itself. Those that have answered this very command already are not asked again; where one has answered another by this id, none is. */
  async #tell({ params: { brake: target }, query: { waitMs }, principal, command: id, signal }: BrakeCall, message: Asking): Promise<Answer> {
    this.#mayHold(principal, target);
    const name = brakeKey(target);
    const before = await this.queries.brakesUnder(id);
    for (const { view } of before) answering(message, eventOf(view));
    const told = new Set(before.map(({ lane }) => lane));
    const asked = Array.from({ length: this.lanes }, (_, lane) => lane).filter((lane) => !told.has(lane));
    const heard = await Promise.all(asked.map((lane) => this.commands.operate({ run: brakeStream(lane), lane, principal, id, message, waitMs, signal })));
    const refusal = heard.find((answer) => answer?.type === 'InputRefused');
    // One that some lanes had still to do was no refusal: it brought them in step.
    if (refusal?.type === 'InputRefused' && heard.every((answer) => answer?.type === 'InputRefused')) throw new Problem('refused', String(refusal.data['message']), { extra: { reason: refusal.data['reason'], command: id } });
    if (heard.some((answer) => answer === null)) return { status: 202, body: { command: id, location: '/v1/brakes' }, headers: { location: '/v1/brakes' } };
    return ok({ command: id, brake: name, lanes: this.lanes });
  }

  #mayHold({ tenant }: Principal, target: BrakeTarget): void {
    if (!isOfTenant(target, tenant)) throw new Problem('not-found', 'there is no such tenant here');
    if (target.kind !== 'tenant' && tenant !== this.house) throw new Problem('forbidden', `${target.kind}s are shared by all tenants: only operators of the tenant "${this.house}" hold them still; hold your own tenant, or single runs`);
  }
}

function brakeOut(views: readonly BrakeView[], of: number): z.input<typeof Brake> {
  const [first] = views;
  if (first === undefined) throw new Error('a brake without a lane');
  return { brake: first.name, kind: first.target.kind, by: first.by, reason: first.reason ?? '', since: iso(Math.min(...views.map(({ at }) => at))), lanes: views.length, of };
}
