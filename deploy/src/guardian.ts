import { spawn } from 'node:child_process';

/**
 * Reads from a pipe that only our process holds open, so it wakes when we die, by SIGKILL too,
 * and then ends the child as we would have.
 */
const WATCH = `
read -r _
kill -"$2" "$1" 2>/dev/null
tries=0
while kill -0 "$1" 2>/dev/null && [ "$tries" -lt 40 ]; do sleep 0.25; tries=$((tries + 1)); done
kill -KILL "$1" 2>/dev/null
`;

/** Makes sure that a child doesn't outlive this process. Call the result once the child is gone. */
export function guard(pid: number, stopSignal: NodeJS.Signals): () => void {
  const guardian = spawn('sh', ['-c', WATCH, 'holdfast-guardian', String(pid), stopSignal.replace('SIG', '')], {
    // Its own session: a ctrl-C in our terminal is for us, who stop things in order.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  guardian.on('error', () => undefined);
  guardian.unref();
  // The pipe is a socket to Node, and would hold our event loop open.
  (guardian.stdin as unknown as { unref?: () => void }).unref?.();
  guardian.stdin.on('error', () => undefined);
  return () => {
    guardian.kill('SIGKILL');
  };
}
