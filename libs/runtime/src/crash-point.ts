/**
 * Named places at which a test can kill the process. Armed by `HOLDFAST_CRASH_AT=<name>[:<n>]`
 * (the n-th passage, 1 by default); SIGKILL, since a throw would still run `finally` and ROLLBACK.
 * Unarmed it is an empty function.
 */
export const crashPoint: (name: string) => void = arm(process.env['HOLDFAST_CRASH_AT']);

function arm(armed: string | undefined): (name: string) => void {
  if (armed === undefined || armed === '') return () => undefined;
  const [place, passage] = armed.split(':');
  let left = Number(passage ?? 1);
  return (name) => {
    if (name !== place) return;
    left -= 1;
    if (left > 0) return;
    process.stderr.write(`crash point ${name} reached\n`);
    process.kill(process.pid, 'SIGKILL');
  };
}
