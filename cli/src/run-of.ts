import { fold } from '@holdfast/kernel';
import { absent, evolve, type Run, type RunEvent } from '@holdfast/orchestrator/domain';
import type { TopicStream } from './audit/read-events.js';

/** What a stream of `run.events` comes to. Its events have been chained, not decoded: services alone write that topic. */
export const runOf = ({ events }: Pick<TopicStream, 'events'>): Run => fold(evolve, absent, events.map(({ envelope, data }) => ({ type: envelope.type, data }) as unknown as RunEvent));
