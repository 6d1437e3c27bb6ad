export type BrokerSettings = Readonly<{
  port: number;
  controllerPort: number;
  dataDir: string;
}>;

/** One node that is broker and controller, sized for a laptop or a two-core machine. */
export function brokerProperties({ port, controllerPort, dataDir }: BrokerSettings): Readonly<Record<string, string | number | boolean>> {
  return {
    'process.roles': 'broker,controller',
    'node.id': 1,
    // A static voter, so that a folder can be started again on other ports.
    'controller.quorum.voters': `1@127.0.0.1:${controllerPort}`,
    listeners: `BROKER://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controllerPort}`,
    'advertised.listeners': `BROKER://127.0.0.1:${port}`,
    'listener.security.protocol.map': 'BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'inter.broker.listener.name': 'BROKER',
    'controller.listener.names': 'CONTROLLER',
    'log.dirs': dataDir,

    // A topic that nobody declared is a mistake, not a wish.
    'auto.create.topics.enable': false,
    'message.max.bytes': 1024 * 1024,
    'log.retention.hours': 168,
    'log.segment.bytes': 128 * 1024 * 1024,

    // Crash tests want a dead member noticed in well under the usual six seconds.
    'group.min.session.timeout.ms': 500,
    'group.initial.rebalance.delay.ms': 0,
    // A killed broker may register again only after its old session: the default of nine seconds makes each restart wait.
    'broker.session.timeout.ms': 4000,
    'broker.heartbeat.interval.ms': 400,

    'offsets.topic.num.partitions': 4,
    'offsets.topic.replication.factor': 1,
    'transaction.state.log.num.partitions': 1,
    'transaction.state.log.replication.factor': 1,
    'transaction.state.log.min.isr': 1,
    'share.coordinator.state.topic.num.partitions': 1,
    'share.coordinator.state.topic.replication.factor': 1,
    'share.coordinator.state.topic.min.isr': 1,

    'num.network.threads': 2,
    'num.io.threads': 4,
    'background.threads': 2,
    'num.recovery.threads.per.data.dir': 2,
    // The defaults reserve 128 MiB of heap for the cleaner and 10 MiB of index file for each partition.
    'log.cleaner.dedupe.buffer.size': 16 * 1024 * 1024,
    'log.index.size.max.bytes': 1024 * 1024,
  };
}

/** Java's property file syntax: a backslash starts an escape, and what is not Latin-1 must be one. */
export function renderProperties(properties: Readonly<Record<string, string | number | boolean>>): string {
  return Object.entries(properties)
    .map(([key, value]) => `${escapeKey(key)}=${escapeValue(String(value))}\n`)
    .join('');
}

export function loggingProperties(logFile: string): string {
  return renderProperties({
    status: 'error',
    'appender.file.type': 'File',
    'appender.file.name': 'file',
    'appender.file.fileName': logFile,
    'appender.file.layout.type': 'PatternLayout',
    'appender.file.layout.pattern': '%d{ISO8601} %-5p %c{1} %m%n',
    'rootLogger.level': 'warn',
    'rootLogger.appenderRef.file.ref': 'file',
    'logger.server.name': 'kafka.server',
    'logger.server.level': 'warn',
  });
}

const escapeKey = (key: string): string => escapeValue(key).replace(/[ :=]/g, '\\$&');

const escapeValue = (value: string): string =>
  value
    .replace(/\\/g, '\\\\')
    .replace(/\n/g, '\\n')
    .replace(/\r/g, '\\r')
    .replace(/\t/g, '\\t')
    .replace(/^[ #!]/, '\\$&')
    .replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
