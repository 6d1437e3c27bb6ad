import { z } from 'zod';
import { Instant } from './ids.js';
import { message } from './message.js';

/**
 * A privileged act was asked for, by whom: written before it is carried out, so that none goes
 * without. What came of it stands with whoever decided it, under the same command.
 */
export const ActAsked = message(
  'ActAsked',
  z.object({
    act: z.string().min(1).max(100),
    /** `id`: an API key's public part, or a token's subject; `cli` for the command line. */
    by: z.object({ id: z.string().max(200), name: z.string().max(200), roles: z.array(z.string().max(100)).max(50) }),
    /** What it is about: an address of the API, or a thing's name. */
    about: z.string().max(4000),
    command: z.string().max(200).nullable(),
    at: Instant,
  }),
);

/** Types on the topic `audit.events`. */
export const auditMessages = [ActAsked] as const;
