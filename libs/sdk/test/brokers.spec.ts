import { describe, expect, it } from '@jest/globals';
import { tail } from '@holdfast/runtime/kafka';
import { z } from 'zod';
import { brokerError } from '../src/broker-error.js';
import { HoldfastClient } from '../src/client/index.js';
import { inOurWords, type ClientLog } from '../src/client/log.js';
import { defineAgent } from '../src/define/agent.js';
import { BrokersUnavailable, BrokerRefused, OutcomeTimeout } from '../src/errors.js';
import { serve } from '../src/host/serve.js';

/** Nothing listens there. */
const brokers = ['127.0.0.1:1'];
const agent = defineAgent({ name: 'adder', version: '1', input: z.null(), output: z.null(), run: () => Promise.resolve(null) });

/** What kafkajs says when nobody answers. */
const away = tail({ brokers, topics: ['run.events'], from: 'end', onRecord: () => undefined }).then(
  () => {
    throw new Error('somebody answers at a closed port');
  },
  (error: unknown) => error as Error,
);
const refusal = Object.assign(new Error('Not authorized'), { name: 'KafkaJSProtocolError', type: 'TOPIC_AUTHORIZATION_FAILED' });

/** A client that has connected, and whose brokers then say this to whatever it does. */
async function clientAfter(said: 'open' | 'begin', error: Error): Promise<HoldfastClient> {
  const log: ClientLog = {
    publish: () => Promise.reject(error),
    tail: ({ onError }) => {
      if (said === 'open') return Promise.reject(error);
      const caughtUp = Promise.reject(error);
      caughtUp.catch(() => undefined);
      setImmediate(() => onError(error));
      return Promise.resolve({ caughtUp, close: () => Promise.resolve() });
    },
    laneOf: () => 2,
    close: () => Promise.resolve(),
  };
  return HoldfastClient.over(inOurWords(brokers, log));
}

const thrownBy = (work: Promise<unknown>): Promise<unknown> => work.then(() => 'nothing was thrown', (error: unknown) => error);
const READING = /^the events of run r \(lane 2 of run\.events\) can't be read: Kafka at 127\.0\.0\.1:1 does not answer \(KafkaJS.*\)\. .*then ask again/;
const written = (type: string): RegExp => new RegExp(`^${type} for run r may not have been written to agent\\.intents: Kafka at 127\\.0\\.0\\.1:1 does not answer \\(KafkaJS.*\\)\\. .*written twice it is taken once`);

describe('while no broker answers', () => {
  it('every call says so in Holdfast’s words', async () => {
    const cause = await away;
    const asks: readonly (readonly [string, RegExp, (client: HoldfastClient) => Promise<unknown>])[] = [
      ['start', written('StartRun'), (client) => client.start(agent, null, { runId: 'r' })],
      ['signal', written('SignalRun'), (client) => client.signal('r', 'paid', 1)],
      ['deliverCallback', written('DeliverCallback'), (client) => client.deliverCallback('r', '1', 'token', 1)],
      ['attach', READING, (client) => client.attach('r')],
      ['events', READING, (client) => client.events('r').next()],
      ['events of a handle', READING, (client) => client.run('r').events().next()],
    ];
    const said = async (when: 'open' | 'begin'): Promise<unknown[]> => {
      const client = await clientAfter(when, cause);
      const all = await Promise.all(asks.map(async ([name, , ask]) => [name, await thrownBy(ask(client))]));
      await client.close();
      return all;
    };
    const words = asks.map(([name, message]) => [name, expect.objectContaining({ name: 'BrokersUnavailable', message: expect.stringMatching(message), cause, failureClass: 'transient' })]);
    expect(await Promise.all([said('open'), said('begin')])).toEqual([words, words]);
  }, 60_000);

  it('outcome and standing wait as long as they may', async () => {
    const client = await clientAfter('open', await away);
    for (const asked of [client.outcome('r', { timeoutMs: 20 }), client.standing('r', { timeoutMs: 20 })]) await expect(asked).rejects.toBeInstanceOf(OutcomeTimeout);
    await client.close();
  });

  it('nobody connects, and no worker starts', async () => {
    const [client, worker] = await Promise.all([thrownBy(HoldfastClient.connect({ brokers })), thrownBy(serve({ brokers, agents: [agent], pool: 'agents', worker: 'w' }))]);
    expect(client).toBeInstanceOf(BrokersUnavailable);
    expect(client).toMatchObject({ message: expect.stringMatching(/^client holdfast-client can't connect: Kafka at 127\.0\.0\.1:1 does not answer \(KafkaJS.*then connect again/) });
    expect(worker).toBeInstanceOf(BrokersUnavailable);
    expect(worker).toMatchObject({ message: expect.stringMatching(/^worker w of pool agents can't start: Kafka at 127\.0\.0\.1:1 does not answer .*then start it again/) });
  }, 120_000);
});

describe('what a broker refuses for good', () => {
  it.each<[string, (client: HoldfastClient) => Promise<unknown>]>([
    ['signal', (client) => client.signal('r', 'paid', 1)],
    ['attach', (client) => client.attach('r')],
    ['events', (client) => client.events('r').next()],
    ['outcome', (client) => client.outcome('r')],
    ['standing', (client) => client.standing('r')],
  ])('%s says that rights or settings must change', async (_, ask) => {
    const client = await clientAfter('open', refusal);
    const thrown = await thrownBy(ask(client));
    expect(thrown).toBeInstanceOf(BrokerRefused);
    expect(thrown).toMatchObject({ message: expect.stringMatching(/run r.*Kafka at 127\.0\.0\.1:1 refuses it \(KafkaJSProtocolError: Not authorized\)\. Change this client's rights/), cause: refusal });
    await client.close();
  }, 30_000);
});

describe('what a broker answers', () => {
  const answered = (type: string): Error => Object.assign(new Error('said so'), { name: 'KafkaJSProtocolError', type });
  it.each([
    ['MESSAGE_TOO_LARGE', BrokerRefused, /refuses it .*Change this client's rights, or the settings there/],
    ['RECORD_LIST_TOO_LARGE', BrokerRefused, /refuses it/],
    ['POLICY_VIOLATION', BrokerRefused, /refuses it/],
    ['UNKNOWN_TOPIC_OR_PARTITION', BrokersUnavailable, /answers that it can't now .*holdfast doctor/],
    ['LEADER_NOT_AVAILABLE', BrokersUnavailable, /answers that it can't now/],
  ])('%s is not called silence', (type, of, words) => {
    const error = brokerError(answered(type), 'it was not written', brokers, 'do it again');
    expect(error).toBeInstanceOf(of);
    expect((error as Error).message).toMatch(words);
  });
});
