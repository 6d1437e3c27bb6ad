import { brokerAnswer, isOfBroker, isRefusal } from '@holdfast/runtime/kafka';
import { BrokerRefused, BrokersUnavailable, messageOf } from './errors.js';

/** An error of the way to Kafka in Holdfast's words; any other stays as it is. `what` could not be done; `mend`: what to do once brokers answer. */
export function brokerError(error: unknown, what: string, brokers: readonly string[], mend: string): unknown {
  if (!isOfBroker(error)) return error;
  const at = brokers.join(', ');
  if (isRefusal(error)) return new BrokerRefused(`${what}: Kafka at ${at} refuses it (${messageOf(error)}). Change this client's rights, or the settings there, then ${mend}`, { cause: error });
  return brokerAnswer(error) !== undefined
    ? new BrokersUnavailable(`${what}: Kafka at ${at} answers that it can't now (${messageOf(error)}). See that its brokers and Holdfast's topics are well (\`holdfast doctor\`), then ${mend}`, { cause: error })
    : new BrokersUnavailable(`${what}: Kafka at ${at} does not answer (${messageOf(error)}). See that the addresses are right and a broker is up, then ${mend}`, { cause: error });
}

/** Does it, and says in Holdfast's words why it can't be done. */
export async function withBrokers<T>(work: () => Promise<T>, what: string | (() => string), brokers: readonly string[], mend: string): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw brokerError(error, typeof what === 'string' ? what : what(), brokers, mend);
  }
}
