import { afterEach, expect, jest, test } from '@jest/globals';
import { onSignals } from '../../src/host/signals.js';
import { Gate, settle } from './kit.js';

afterEach(() => void jest.restoreAllMocks());

test('a signal stops the worker, and then ends the process as it would have', async () => {
  const kill = jest.spyOn(process, 'kill').mockReturnValue(true);
  const listeners = process.listenerCount('SIGTERM');
  const stopping = new Gate();
  let stops = 0;
  onSignals(() => {
    stops += 1;
    return stopping.passed;
  });
  process.emit('SIGTERM');
  await settle();
  expect(stops).toBe(1);
  expect(kill).not.toHaveBeenCalled();
  expect(process.listenerCount('SIGTERM')).toBe(listeners); // A second one would end the process at once.
  stopping.open();
  await settle();
  expect(kill).toHaveBeenCalledWith(process.pid, 'SIGTERM');
});

test('taken off, it leaves no handler behind', () => {
  const before = [process.listenerCount('SIGTERM'), process.listenerCount('SIGINT')];
  onSignals(() => Promise.resolve())();
  expect([process.listenerCount('SIGTERM'), process.listenerCount('SIGINT')]).toEqual(before);
});
