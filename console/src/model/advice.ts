import type { Approval, Case } from '../api/client.js';
import { away, duration } from './format.js';

const statusIn = (answer: unknown): string | null => (typeof answer === 'object' && answer !== null && 'status' in answer && typeof answer.status === 'string' ? answer.status : null);

/** What a person had better know before saying what became of an effect: a sentence each, the weightiest first. */
export function caseAdvice(of: Case, now: number): string[] {
  const said: string[] = [];
  if (of.escalated.includes('contradictory')) said.push('Two answers contradict each other. Look at the target yourself before you decide.');
  if (of.effect === 'irreversible') said.push('If you say “not applied” and it was, it happens twice. If you say “applied” and it was not, it never happens. When in doubt, leave the case open.');
  else said.push('The target takes the same key twice without doing it twice: another try is safe.');
  if (of.readingFrom === null) said.push('Finding nothing at the target proves nothing here: a request may still be on its way, and its tool names no time after which none is. “Not applied” needs the tick “I know better”.');
  else if (Date.parse(of.readingFrom) > now) said.push(`Finding nothing at the target counts only from ${away(of.readingFrom, now)} on: until then a request may still be on its way.`);
  switch (statusIn(of.lastAnswer)) {
    case 'applied':
      said.push('The probe found it at the target.');
      break;
    case 'not_applied':
      said.push('The probe found nothing at the target.');
      break;
    case 'pending':
      said.push('The target is still working on it.');
      break;
    case 'no_answer':
      said.push(`The probe got no answer, in ${of.probes} tries.`);
      break;
    case null:
      said.push(of.probes === 0 ? 'No probe has asked the target: somebody has to look there.' : 'A probe was sent, and has not answered yet.');
      break;
    default:
      said.push('The probe could not tell.');
  }
  if (of.nextLookAt !== null) said.push(`Holdfast looks again ${away(of.nextLookAt, now)}.`);
  return said;
}

/** The same for an approval. */
export function approvalAdvice(of: Approval, principal: string | null, me: string, now: number): string[] {
  const said: string[] = [];
  if (of.fourEyes && principal === me) said.push('The run acts for you: somebody else has to decide.');
  else if (of.fourEyes) said.push('Two people are needed: whoever the run acts for can’t approve it.');
  if (of.deadline !== null) {
    const left = Date.parse(of.deadline) - now;
    said.push(left <= 0 ? 'Its deadline has passed.' : `It waits ${duration(left)} more; then its deadline decides.`);
  }
  if (of.reminded > 0) said.push(`Somebody was reminded ${of.reminded === 1 ? 'once' : `${of.reminded} times`}.`);
  if (of.escalatedTo !== null) said.push(`It was brought to ${of.escalatedTo}, since nobody had answered.`);
  said.push('You approve exactly the call that is shown: another tool, target or argument needs another approval.');
  return said;
}
