import { AbandonWait, CallGroup, CallTool, Fence, FinishRun, RecordStep, RejectReason, ReleaseRun, Report, ReportDivergence, ReportSteps, ReportTry, StartWait, Step, type Envelope } from '@holdfast/protocol';
import type { Unreadable } from '@holdfast/runtime';
import { z } from 'zod';
import type { Command } from './domain/commands.js';

/** Of whoever owns a run's loop, who hears of its end. Others' messages about a step ask nothing for it. */
const OWN: ReadonlySet<string> = new Set([CallTool, CallGroup, RecordStep, ReportTry, ReportSteps, StartWait, ReleaseRun, AbandonWait, FinishRun, ReportDivergence].map(({ type }) => type));

/** Each by itself: what is wrong with one of them says nothing about the others. */
const Named = z.object({ step: Step.optional().catch(undefined), fence: Fence.optional().catch(undefined) });
const Reported = z.object({ settles: z.array(Report).max(200).optional().catch(undefined), observed: z.array(Step).max(1000).optional().catch(undefined) });

/** The refusal of an intent that can't be read, for whoever waits for what its step comes to. What it reports is kept where that can be read. */
export function unread({ record, reason, message, data }: Unreadable, { type: intent }: Envelope, at: number): Command<'unreadable'> {
  return { type: 'unreadable', at, intent, reason: RejectReason.safeParse(reason).data ?? 'invalid', message, token: `${record.topic}/${record.lane}/${record.offset}`, ...(OWN.has(intent) ? { ...named(record.value), reported: Reported.safeParse(data).data ?? {} } : { reported: {} }) };
}

/** Also of what is too large, too deep or has a number that JSON can't carry: of that nothing else is believed. */
function named(value: string | null): z.infer<typeof Named> {
  try {
    return Named.safeParse(JSON.parse(value ?? '')).data ?? {};
  } catch {
    return {};
  }
}
