import { traceOf } from '@holdfast/protocol';

/** What a log line is about, with the trace of the run that it names: by it the line is found beside the run's spans. */
export const traced = (about: Record<string, unknown>): Record<string, unknown> => (typeof about['run'] === 'string' && about['trace'] === undefined ? { ...about, trace: traceOf(about['run']) } : about);
