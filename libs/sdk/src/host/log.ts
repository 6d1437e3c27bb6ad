/** What a worker has to say to its operators. An error is an alarm: something stands still until a person looks. */
export interface WorkerLog {
  /** Something that is as it should be. */
  info(message: string, about?: Readonly<Record<string, unknown>>): void;
  /** Something that mends itself, or that an author should look at. */
  warn(message: string, about?: Readonly<Record<string, unknown>>): void;
  /** Something stands still until a person looks. */
  error(message: string, about?: Readonly<Record<string, unknown>>): void;
}

/** One JSON line each, on stderr: stdout belongs to the user's program. */
export const stderrLog: WorkerLog = { info: line('info'), warn: line('warn'), error: line('error') };

function line(level: keyof WorkerLog): WorkerLog['info'] {
  return (message, about = {}) => {
    process.stderr.write(`${JSON.stringify({ level, time: Date.now(), msg: message, ...about })}\n`);
  };
}
