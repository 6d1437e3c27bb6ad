const SIGNALS = ['SIGTERM', 'SIGINT'] as const;

/**
 * Stops on SIGTERM and SIGINT, then sends the signal on to the process, so that it ends as it would
 * have and with the right status. A second signal ends it at once. Returns what takes the handlers off.
 */
export function onSignals(stop: () => Promise<void>): () => void {
  const remove = (): void => {
    for (const [name, registered] of handlers) process.removeListener(name, registered);
  };
  const handlers = SIGNALS.map((signal) => {
    const handler = (): void => {
      remove();
      void stop().finally(() => process.kill(process.pid, signal));
    };
    return [signal, handler] as const;
  });
  for (const [signal, handler] of handlers) process.on(signal, handler);
  return remove;
}
