import type { Json } from '@holdfast/protocol';
import { TestGateway, type Asked, type Reply } from '../support/gateway.js';
import { startReceiver } from '../support/receiver.js';
import type { TestStack } from '../support/stack.js';

const WEBHOOK_KEY = 'a webhook key of the matrix, of thirty-two characters';
const TOLD = 'RunFinished';
const AGAIN_MS = 100;
/** Longer than what a dead gateway had in hand stays its own, as often as it dies at one boundary. */
const ANSWERED_WITHIN_MS = 180_000;
/** Longer than a request waits for its answer. */
const REQUEST_MS = 60_000;
const IN_PROGRESS = 'urn:holdfast:problem:idempotency-in-progress';

/**
 * A program that knows the gateway alone. Each of its requests carries an Idempotency-Key and is sent again until it has
 * its answer: when the gateway dies in the middle, it can't know whether it was carried out.
 */
export class Caller {
  /** Answers that no repetition may give. */
  readonly #faults = new Map<string, string[]>();
  #hook = '';

  private constructor(
    readonly gateway: TestGateway,
    private readonly receiver: Awaited<ReturnType<typeof startReceiver>>,
    private readonly key: string,
    private readonly signal: AbortSignal,
  ) {}

  static async open(stack: TestStack, signal: AbortSignal): Promise<Caller> {
    const gateway = await TestGateway.start(stack, { HOLDFAST_WEBHOOK_KEY: WEBHOOK_KEY, HOLDFAST_HTTP_RATE: '1000000' });
    const receiver = await startReceiver();
    const caller = new Caller(gateway, receiver, await gateway.key({ roles: ['admin', 'operator'], name: 'matrix' }), signal);
    const made = await caller.#insist('~', 'hook', '/v1/webhooks', { url: `${receiver.url}/told`, types: [TOLD] });
    caller.#hook = String(made?.body['id']);
    return caller;
  }

  async close(): Promise<void> {
    await this.gateway.stop();
    await this.receiver.close();
  }

  async start(run: string, input: Json): Promise<void> {
    await this.#insist(run, 'start', '/v1/runs', { agent: { name: 'cell', version: '1' }, runId: run, input });
  }

  async tell(run: string, name: string, payload: Json): Promise<void> {
    await this.#insist(run, `signal-${name}`, `/v1/runs/${run}/signal`, { name, payload });
  }

  async cancel(run: string): Promise<void> {
    await this.#insist(run, 'cancel', `/v1/runs/${run}/cancel`, { reason: 'as planned', manner: 'immediate' });
  }

  async approve(run: string, step: string): Promise<void> {
    const address = `/v1/approvals/${encodeURIComponent(`${run}/${step}`)}`;
    // It is shown once the read models have the wait.
    const shown = await this.#until(run, address, {}, ({ status }) => status === 200);
    await this.#insist(run, `approve-${step}`, `${address}/approve`, { digest: shown?.body['digest'] ?? null });
  }

  /** What is wrong with what it was answered, shown and told about a run that has ended so. */
  async faultsOf(run: string, status: string): Promise<readonly string[]> {
    const shown = await this.#until(run, `/v1/runs/${run}`, {}, ({ body }) => typeof body['endedAt'] === 'string');
    const told = (): Set<string> => new Set(this.receiver.posted.filter(({ body }) => (JSON.parse(body) as { data: { run: string } }).data.run === run).map(({ headers }) => String(headers['webhook-id'])));
    // What was posted, and not noted as posted, is posted once more.
    await this.#until(run, `/v1/webhooks/${this.#hook}/deliveries?state=pending`, {}, ({ status, body }) => status === 200 && told().size > 0 && (body['items'] as readonly Json[]).length === 0);
    if (shown !== null && shown.body['status'] !== status) this.#fault(run, `the gateway shows ${run} as ${String(shown.body['status'])}, and it is ${status}`);
    if (told().size !== 1) this.#fault(run, `the end of ${run} was told under ${told().size} ids`);
    return this.#faults.get(run) ?? [];
  }

  #fault(run: string, what: string): void {
    this.#faults.set(run, [...(this.#faults.get(run) ?? []), what]);
  }

  /** Sends it until it is answered: by its key it is one request. */
  async #insist(run: string, name: string, address: string, body: Json): Promise<Reply | null> {
    const reply = await this.#until(run, address, { method: 'POST', body, headers: { 'idempotency-key': `${run}-${name}` } }, ({ status, body: { type } }) => status < 500 && status !== 202 && type !== IN_PROGRESS);
    if (reply !== null && reply.status >= 300) this.#fault(run, `${address} answered ${reply.status}: ${reply.text}`);
    return reply;
  }

  async #until(run: string, address: string, asked: Asked, isGood: (reply: Reply) => boolean): Promise<Reply | null> {
    const until = Date.now() + ANSWERED_WITHIN_MS;
    while (!this.signal.aborted) {
      const reply = await this.gateway.ask(address, { key: this.key, signal: AbortSignal.timeout(REQUEST_MS), ...asked }).catch(() => null); // It is dead, died with our request in hand, or says nothing.
      if (reply !== null && isGood(reply)) return reply;
      if (Date.now() > until) {
        this.#fault(run, `${address} is not answered as it must be: ${reply === null ? 'nothing answers' : `${reply.status} ${reply.text}`}`);
        return null;
      }
      await new Promise((resolve) => {
        setTimeout(resolve, AGAIN_MS);
      });
    }
    return null;
  }
}
