import { describe, expect, test } from '@jest/globals';
import { brokerProperties, loggingProperties, renderProperties } from '../src/kafka-config.js';

describe('a property file', () => {
  test('has a line for each property', () => {
    expect(renderProperties({ 'node.id': 1, 'log.dirs': '/data/kafka', flag: false })).toBe('node.id=1\nlog.dirs=/data/kafka\nflag=false\n');
  });

  test('escapes what Java would read as something else', () => {
    expect(renderProperties({ path: 'C:\\data\\new' })).toBe('path=C:\\\\data\\\\new\n');
    expect(renderProperties({ folder: ' leading' })).toBe('folder=\\ leading\n');
    expect(renderProperties({ folder: '/home/zoë' })).toBe('folder=/home/zo\\u00eb\n');
    expect(renderProperties({ 'a key': 'two\nlines' })).toBe('a\\ key=two\\nlines\n');
  });
});

describe("the broker's settings", () => {
  const properties = brokerProperties({ port: 1111, controllerPort: 2222, dataDir: '/data' });

  test('listen on the loopback address alone', () => {
    expect(properties['listeners']).toBe('BROKER://127.0.0.1:1111,CONTROLLER://127.0.0.1:2222');
    expect(properties['controller.quorum.voters']).toBe('1@127.0.0.1:2222');
  });

  test('refuse topics that nobody created and let members be found dead fast', () => {
    expect(properties).toMatchObject({
      'auto.create.topics.enable': false,
      'group.min.session.timeout.ms': 500,
      'group.initial.rebalance.delay.ms': 0,
      'message.max.bytes': 1_048_576,
      'offsets.topic.num.partitions': 4,
      'offsets.topic.replication.factor': 1,
      'transaction.state.log.replication.factor': 1,
    });
  });

  test('log to the file named', () => {
    expect(loggingProperties('/data/kafka.log')).toContain('appender.file.fileName=/data/kafka.log\n');
  });
});
