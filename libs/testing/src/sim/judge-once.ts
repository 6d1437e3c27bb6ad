import type { Core } from './core.js';

/** I1: what a service has written another one handles once, however often it is published. Looked at where that led to rows: what led to none may be read again. */
export function judgeOnce(core: Core): void {
  const handled = new Set<string>();
  core.onHandled = (service, records) => {
    for (const { topic, lane, headers } of records) {
      const { ce_seq: seq, ce_source: source, ce_type: type } = headers;
      if (seq === undefined) continue;
      const row = `${service}|${topic}/${lane}|${String(source)}|${String(seq)}`;
      if (handled.has(row)) core.violated('I1', `the ${service} has handled ${String(type)} no. ${String(seq)} of ${topic}/${lane} twice`);
      handled.add(row);
    }
  };
}
