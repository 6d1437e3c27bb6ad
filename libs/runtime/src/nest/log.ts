import { pino, type Logger } from 'pino';
import { traced } from '../telemetry/log.js';

/** A process's own log: JSON lines on stdout. A line that names a run carries its trace. */
export const openLog = (service: string, instance: string, level: string): Logger => pino({ level, base: { service, instance }, formatters: { log: traced } }, pino.destination({ fd: 1, sync: true }));
