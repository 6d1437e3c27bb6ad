import { describe, expect, test } from '@jest/globals';
import { ignore, record } from '@holdfast/kernel';
import { CaseEscalated, CaseEvidenceAdded, CaseReminded, CaseSettled, isoTime, ProbeConcluded, type UnknownCause } from '@holdfast/protocol';
import { dueAt, type Case, type CaseEvent } from '../src/domain/case.js';
import { FRUITLESS_BEFORE_NEXT_STEP, REFIRES_MAX } from '../src/domain/schedule.js';
import { answered, APPLIED, applied, concluded, due, ended, eventsOf, given, NOT_AFTER, notApplied, now, open, opened, pending, played, probed, READING_FROM, ref, resolve, sent, SETTLE_DELAY_MS, step, stillUnknown, tool } from './kit.js';

const caseIn = (events: readonly CaseEvent[]): Case => {
  const found = given(...events).state().cases.get(step);
  if (found === undefined) throw new Error('no case');
  return found;
};
const settled = (over: Partial<ReturnType<typeof CaseSettled>['data']>): CaseEvent =>
  CaseSettled({ ...ref, verdict: { status: 'not_applied' }, by: 'probe', evidence: probed, because: 'b', readAt: now + 1000, sealing: false, forced: false, ...over });
const nothing = { ...ref, to: 'payments@example.org', reason: 'nothing_helps' as const };

describe('an unknown outcome', () => {
  test('opens a case: whose it is, from when on a look proves something, and when it is looked at', () => {
    expect(given().when(open())).toEqual(record(opened()));
  });

  test('read again opens nothing, nor does an older one', () => {
    expect(given(opened()).when(open())).toEqual(ignore('opened_before'));
    expect(given(opened({ of: 5 })).when(open({ of: 4 }))).toEqual(ignore('opened_before'));
    expect(given(opened(), settled({})).when(open())).toEqual(ignore('opened_before'));
  });

  test('of the ledger’s own owner is that owner’s', () => {
    expect(given().when(open({ more: { owner: 'desk' } }))).toMatchObject({ events: [{ data: { owner: 'desk' } }] });
    expect(given().when(open({ contract: { owner: null } }))).toMatchObject({ events: [{ data: { owner: null } }] });
  });

  test('keeps what is proved, and the name that the target gave it', () => {
    expect(given().when(open({ cause: 'partial_effect', more: { proved: { sent: 3 }, operationId: 'op-1' } }))).toMatchObject({ events: [{ data: { cause: 'partial_effect', proved: { sent: 3 }, operationId: 'op-1' } }] });
  });

  test('that a look can’t prove: without a last moment, or without a settle delay', () => {
    expect(given().when(open({ notAfter: null }))).toMatchObject({ events: [{ data: { readingFrom: null } }] });
    expect(given().when(open({ contract: { settleDelayMs: null } }))).toMatchObject({ events: [{ data: { readingFrom: null } }] });
    expect(given().when(open({ contract: { settleDelayMs: 0 } }))).toMatchObject({ events: [{ data: { readingFrom: READING_FROM - SETTLE_DELAY_MS } }] });
  });

  test('is looked at by a sealing probe at once, by a reading one after its first pause; what was accepted takes its time', () => {
    expect(given().when(open({ contract: { probe: { sealing: true } } }))).toMatchObject({ events: [{ data: { nextLookAt: now } }] });
    expect(given().when(open({ contract: { probe: { initialMs: 70 } } }))).toMatchObject({ events: [{ data: { nextLookAt: now + 70 } }] });
    expect(given().when(open({ cause: 'accepted', contract: { probe: { sealing: true } } }))).toMatchObject({ events: [{ data: { nextLookAt: now + 1000 } }] });
  });

  test('without a probe is brought to a person at once', () => {
    expect(given().when(open({ contract: { probe: null, ageing: { escalateTo: 'boss' } } }))).toEqual(
      record<CaseEvent>(
        opened({ nextLookAt: null, because: 'its tool has no probe: a person must look' }),
        CaseEscalated({ ...nothing, to: 'boss', message: 'nobody but a person can say whether refund happened: no end by its deadline' }),
      ),
    );
    expect(eventsOf(given().when(open({ contract: null })))).toMatchObject([{ data: { nextLookAt: null, owner: null } }, { type: 'CaseEscalated', data: { to: null } }]);
  });

  test('of a target that is idempotent, without a probe: the same key is tried a little later, unless a part is proved', () => {
    expect(given().when(open({ effect: 'idempotent', contract: { probe: null } }))).toMatchObject({ events: [{ type: 'CaseOpened', data: { nextLookAt: now + 5000, because: 'its target is idempotent: the same key can be sent again' } }] });
    expect(eventsOf(given().when(open({ effect: 'idempotent', cause: 'partial_effect', contract: { probe: null } })))).toMatchObject([{ data: { nextLookAt: null } }, { type: 'CaseEscalated' }]);
  });

  test('has times at which people are told', () => {
    expect(given().when(open({ contract: { ageing: { remindAfterMs: 60, escalateAfterMs: 90 }, targetRemembersKeysForMs: 700 } }))).toMatchObject({ events: [{ data: { remindAt: now + 60, escalateAt: now + 90, keyKnownUntil: now + 200 } }] });
  });

  test('of a later attempt takes the place of the settled case before; numbers of probes begin anew', () => {
    const events = [opened(), sent(), settled({})];
    const again = played(events, open({ attempt: 2, of: 6 }));
    expect(caseIn(again)).toMatchObject({ status: 'open', attempt: 2 });
    expect(caseIn(again).probes.size).toBe(0);
  });

  test('opened anew for the same attempt goes on counting its probes: an old answer is told from a new one', () => {
    const again = played([opened(), sent(), settled({})], open({ of: 6 }));
    expect(given(...again).when(due(now + 9000))).toMatchObject({ events: [{ type: 'ProbeSent', data: { probe: 2 } }] });
  });
});

describe('a look', () => {
  test('is not due before its time', () => {
    expect(given(opened()).when(due(now + 999))).toEqual(ignore('not_due'));
    expect(given().when(due(now))).toEqual(ignore('not_due'));
    expect(given(opened(), settled({})).when(due(now + 1e9))).toEqual(ignore('not_due'));
  });

  test('sends a probe, with the time by which an answer is waited for', () => {
    expect(given(opened()).when(due(now + 1000))).toEqual(record(sent()));
    expect(given(opened()).when(due(now + 1000, 'irreversible', { probe: { timeoutMs: 700 } }))).toMatchObject({ events: [{ data: { answerBy: now + 2400 } }] });
  });

  test('is one at a time', () => {
    expect(given(opened(), sent()).when(due(now + 1199))).toEqual(ignore('not_due'));
    expect(dueAt(caseIn([opened(), sent()]))).toBe(now + 1200);
  });

  test('that nobody answered is concluded, and looked at again after a pause that grows', () => {
    const lost = { status: 'no_answer' as const };
    expect(given(opened(), sent()).when(due(now + 1200))).toEqual(record(ProbeConcluded({ ...ref, probe: 1, answer: lost, nextLookAt: now + 2200, because: 'no answer by the time it was due: the probe or its host was lost' })));
    const second = [opened(), sent(), concluded(1, lost, now + 2200), sent(2, now + 2200)];
    expect(given(...second).when(due(now + 2400))).toMatchObject({ events: [{ data: { probe: 2, nextLookAt: now + 4400 } }] });
  });

  test('of which too many brought nothing is brought to people once, and goes on at a steady low rate', () => {
    let events: CaseEvent[] = [opened()];
    let at = now;
    const gaps: number[] = [];
    for (let i = 0; i < 12; i += 1) {
      const next = dueAt(caseIn(events));
      expect(next).not.toBeNull();
      at = next ?? 0;
      events = played(events, due(at), answered(i + 1, stillUnknown, at));
      gaps.push((dueAt(caseIn(events)) ?? 0) - at);
    }
    expect(gaps).toEqual([1000, 2000, 4000, ...Array.from({ length: 9 }, () => 8000)]);
    const escalations = events.flatMap((event, i) => (event.type === 'CaseEscalated' ? [i] : []));
    expect(escalations).toHaveLength(1);
    expect(events.filter(({ type }) => type === 'ProbeConcluded').indexOf(events[(escalations[0] ?? 0) - 1] as CaseEvent)).toBe(FRUITLESS_BEFORE_NEXT_STEP - 1);
    expect(events[escalations[0] ?? 0]?.data).toEqual({ ...nothing, message: '5 looks brought nothing (the API answers 404 for young ids): no end by its deadline' });
  });

  test('by a tool that says "pending" is no fruitless one, and is paused longer each time all the same', () => {
    const looked = Array.from({ length: 8 }).reduce<CaseEvent[]>((events, _, i) => {
      const at = dueAt(caseIn(events)) ?? 0;
      return played(events, due(at), answered(i + 1, pending, at));
    }, [opened()]);
    expect(looked.some(({ type }) => type === 'CaseEscalated')).toBe(false);
    expect(caseIn(looked)).toMatchObject({ fruitless: 0 });
    expect(looked.at(-1)).toMatchObject({ data: { nextLookAt: (dueAt(caseIn(looked.slice(0, -2))) ?? 0) + 8000 } });
  });

  test('is spread by chance', () => {
    expect(given(opened(), sent()).when({ ...due(now + 1200), jitter: 0 })).toMatchObject({ events: [{ data: { nextLookAt: now + 1700 } }] });
  });
});

describe('an idempotent target', () => {
  const idem = opened({ effect: 'idempotent' });
  const again = { verdict: { status: 'same_key_again' }, by: 'policy', readAt: null };
  const spent = (attempt: number, over = {}) => opened({ effect: 'idempotent', attempt, ...over });

  test('without a probe gets the same key again when its time has come', () => {
    expect(given(idem).when(due(now + 1000, 'idempotent', { probe: null }))).toMatchObject({ events: [{ type: 'CaseSettled', data: again }] });
  });

  test('with one, after looks that brought nothing', () => {
    const lost = Array.from({ length: FRUITLESS_BEFORE_NEXT_STEP }).reduce<CaseEvent[]>((events, _, i) => {
      const at = dueAt(caseIn(events)) ?? 0;
      return played(events, due(at, 'idempotent'), answered(i + 1, stillUnknown, at, { effect: 'idempotent' }));
    }, [idem]);
    expect(lost.slice(-2)).toMatchObject([{ type: 'ProbeConcluded', data: { probe: FRUITLESS_BEFORE_NEXT_STEP } }, { type: 'CaseSettled', data: again }]);
  });

  test('a few times beyond the attempts of its contract, then a person must look; nothing is due by itself any more', () => {
    const last = 3 + REFIRES_MAX;
    expect(given(spent(last - 1)).when(due(now + 1000, 'idempotent', { probe: null }))).toMatchObject({ events: [{ type: 'CaseSettled' }] });
    const over = given(spent(last)).when(due(now + 1000, 'idempotent', { probe: null }));
    expect(over).toMatchObject({ events: [{ type: 'CaseEscalated', data: { reason: 'nothing_helps', nextLookAt: null, message: expect.stringContaining(`${last} attempts brought no end`) } }] });
    expect(dueAt(caseIn([spent(last), ...eventsOf(over)]))).toBeNull();
  });

  test('never once it may have forgotten the key, nor where a part is proved', () => {
    const known = { keyKnownUntil: now + 1000 };
    expect(given(spent(1, known)).when(due(now + 1000, 'idempotent', { probe: null }))).toMatchObject({ events: [{ type: 'CaseSettled' }] });
    expect(given(spent(1, known)).when(due(now + 1001, 'idempotent', { probe: null }))).toMatchObject({ events: [{ type: 'CaseEscalated', data: { message: expect.stringContaining('may have forgotten the key') } }] });
    expect(given(spent(1, { cause: 'partial_effect' })).when(due(now + 1000, 'idempotent', { probe: null }))).toMatchObject({ events: [{ type: 'CaseEscalated' }] });
  });

  test('never where its run is over: a person must look, and nothing is due by itself', () => {
    const first = eventsOf(given().when(open({ effect: 'idempotent', contract: { probe: null }, more: { last: true } })));
    expect(first).toMatchObject([{ type: 'CaseOpened', data: { last: true, nextLookAt: null } }, { type: 'CaseEscalated' }]);
    expect(dueAt(caseIn(first))).toBeNull();
    const looks = given(spent(1, { last: true }), sent()).when(answered(1, notApplied, now + 1100, { effect: 'idempotent' }));
    expect(looks).toMatchObject({ events: [{ type: 'ProbeConcluded', data: { nextLookAt: READING_FROM } }] });
  });

  test('where a probe finds nothing yet: that proves nothing, and the same key is sent again', () => {
    const early = given(idem, sent()).when(answered(1, notApplied, now + 1100, { effect: 'idempotent' }));
    expect(early).toMatchObject({ events: [{ type: 'ProbeConcluded', data: { answer: notApplied } }, { type: 'CaseSettled', data: again }] });
    // Its attempts are spent: only what proves something may end it as failed.
    const last = [spent(3 + REFIRES_MAX), sent(1, now + 1000, 3 + REFIRES_MAX)];
    expect(given(...last).when(answered(1, notApplied, now + 1100, { effect: 'idempotent', attempt: 3 + REFIRES_MAX }))).toMatchObject({ events: [{ type: 'ProbeConcluded', data: { nextLookAt: READING_FROM } }] });
  });

  test('where a probe finds nothing once that is final: not applied', () => {
    expect(given(idem, sent(1, READING_FROM)).when(answered(1, notApplied, READING_FROM + 5, { effect: 'idempotent' }))).toMatchObject({ events: [{ type: 'CaseSettled', data: { verdict: { status: 'not_applied' }, by: 'probe', readAt: READING_FROM } }] });
  });
});

describe('an answer', () => {
  const asked = [opened(), sent()];

  test('applied settles it, with the result and what shows it', () => {
    expect(given(...asked).when(answered(1, applied))).toEqual(
      record(settled({ verdict: { status: 'applied', result: { value: { id: 're_1' } } }, because: 'the target has the effect under this operation key' })),
    );
  });

  test('not applied, by a probe that seals: settled, however early', () => {
    expect(given(...asked).when(answered(1, notApplied, now + 1100, { contract: { probe: { sealing: true }, settleDelayMs: null } }))).toEqual(
      record(settled({ sealing: true, because: 'the target has nothing under this operation key, and the attempt is voided there' })),
    );
  });

  test('not applied, asked in time: settled; a millisecond earlier: looked at again when it is final', () => {
    expect(given(opened(), sent(1, READING_FROM)).when(answered(1, notApplied, READING_FROM + 9))).toEqual(
      record(settled({ readAt: READING_FROM, because: 'the target has nothing under this operation key, and nothing of the attempt can take effect any more' })),
    );
    const early = given(opened(), sent(1, READING_FROM - 1)).when(answered(1, notApplied, READING_FROM + 9));
    expect(early).toMatchObject({ events: [{ type: 'ProbeConcluded', data: { because: 'the target has nothing yet, and the attempt might still take effect' } }] });
  });

  test('asked early and answered late is early', () => {
    expect(given(...asked).when(answered(1, notApplied, READING_FROM + 1e6))).toMatchObject({ events: [{ type: 'ProbeConcluded' }] });
  });

  test('not applied, and early: the next look is when it is final', () => {
    expect(given(...asked).when(answered(1, notApplied))).toMatchObject({ events: [{ data: { nextLookAt: READING_FROM } }] });
  });

  test('not applied, where the contract knows no time after which that is final: settles nothing, ever', () => {
    const none = opened({ readingFrom: null });
    expect(given(none, sent(1, now + 1e9)).when(answered(1, notApplied, now + 1e9 + 5))).toMatchObject({ events: [{ type: 'ProbeConcluded', data: { because: 'the target has nothing yet, and the contract names no time after which that is final' } }] });
  });

  test('pending or unknown settles nothing', () => {
    expect(given(...asked).when(answered(1, pending))).toMatchObject({ events: [{ type: 'ProbeConcluded', data: { answer: pending, because: 'the target is still working on it' } }] });
    expect(given(...asked).when(answered(1, stillUnknown))).toMatchObject({ events: [{ type: 'ProbeConcluded', data: { answer: stillUnknown } }] });
  });

  test('is bound to its attempt and to a probe that was sent', () => {
    expect(given(...asked).when(answered(1, applied, now, { attempt: 2 }))).toEqual(ignore('other_attempt'));
    expect(given(...asked).when(answered(2, applied))).toEqual(ignore('probe_unknown'));
    expect(given().when(answered(1, applied))).toEqual(ignore('case_unknown'));
    expect(given(...played([opened(), sent(), settled({})], open({ attempt: 2, of: 6 }))).when(answered(1, applied))).toEqual(ignore('other_attempt'));
  });

  test('told twice is one, also the one that settled it', () => {
    for (const answer of [pending, stillUnknown, applied]) {
      const told = played(asked, answered(1, answer));
      expect(given(...told).when(answered(1, answer))).toEqual(ignore('answered_before'));
    }
  });

  test('of a probe that was asked twice, and answers otherwise the second time, counts', () => {
    expect(given(...played(asked, answered(1, stillUnknown))).when(answered(1, applied))).toMatchObject({ events: [{ type: 'CaseSettled', data: { verdict: { status: 'applied' } } }] });
    const sealed = { contract: { probe: { sealing: true } } };
    expect(given(...played(asked, answered(1, notApplied, now + 1100, sealed))).when(answered(1, applied, now + 1100, sealed))).toMatchObject({ events: [{ type: 'CaseEvidenceAdded', data: { contradicts: true } }, { type: 'CaseEscalated' }] });
  });

  test('that comes after it was given up still counts, and leaves the look under way alone', () => {
    const overtaken = [opened(), sent(), concluded(1, { status: 'no_answer' }, now + 2200), sent(2, now + 2200)];
    expect(given(...overtaken).when(answered(1, applied, now + 2300))).toMatchObject({ events: [{ type: 'CaseSettled', data: { verdict: { status: 'applied' }, readAt: now + 1000 } }] });
    const after = played(overtaken, answered(1, stillUnknown, now + 2300));
    expect(caseIn(after)).toMatchObject({ outstanding: { probe: 2, answerBy: now + 2400 } });
    expect(given(...after).when(answered(2, applied, now + 2350))).toMatchObject({ events: [{ type: 'CaseSettled' }] });
  });

  test('an early "not applied" that overtakes a later reading settles nothing', () => {
    const both = [opened(), sent(1, READING_FROM - 1), concluded(1, { status: 'no_answer' }, READING_FROM), sent(2, READING_FROM)];
    expect(given(...both).when(answered(1, notApplied, READING_FROM + 50))).toMatchObject({ events: [{ type: 'ProbeConcluded', data: { probe: 1 } }] });
    expect(given(...both).when(answered(2, notApplied, READING_FROM + 50))).toMatchObject({ events: [{ type: 'CaseSettled', data: { readAt: READING_FROM } }] });
  });
});

describe('an answer after the verdict', () => {
  const by = (verdict: ReturnType<typeof CaseSettled>['data']['verdict'], issuedAt = READING_FROM) => [opened(), sent(1, issuedAt), settled({ verdict, by: 'person' })];
  const kept = (answer: typeof applied, contradicts: boolean) => CaseEvidenceAdded({ ...ref, probe: 1, answer, contradicts });
  const raised = (said: string, answers: string) => CaseEscalated({ ...ref, to: 'payments@example.org', reason: 'contradictory', message: `the case was settled as ${said} by person, and probe 1 answers ${answers}` });
  const result = { value: 1 };

  test('that says the same is kept', () => {
    expect(given(...by({ status: 'applied', result })).when(answered(1, applied))).toEqual(record(kept(applied, false)));
    expect(given(...by({ status: 'not_applied' })).when(answered(1, notApplied))).toEqual(record(kept(notApplied, false)));
    expect(given(...by({ status: 'not_applied' })).when(answered(1, pending))).toEqual(record(kept(pending, false)));
  });

  test('that says the opposite is kept and brought to people, once', () => {
    const told = given(...by({ status: 'not_applied' })).when(answered(1, applied));
    expect(told).toEqual(record<CaseEvent>(kept(applied, true), raised('not_applied', 'applied')));
    expect(given(...by({ status: 'not_applied' }), ...eventsOf(told)).when(answered(1, applied))).toEqual(ignore('answered_before'));
    expect(given(...by({ status: 'applied', result })).when(answered(1, notApplied))).toEqual(record<CaseEvent>(kept(notApplied, true), raised('applied', 'not_applied')));
  });

  test('where an end of its own settled it, too', () => {
    expect(given(...by({ status: 'ended', outcome: 'succeeded' })).when(answered(1, notApplied))).toMatchObject({ events: [{ data: { contradicts: true } }, { type: 'CaseEscalated' }] });
    expect(given(...by({ status: 'ended', outcome: 'rejected' })).when(answered(1, applied))).toMatchObject({ events: [{ data: { contradicts: true } }, { type: 'CaseEscalated' }] });
  });

  test('an early "not applied" contradicts nothing; a sealing one does, however early', () => {
    expect(given(...by({ status: 'applied', result }, READING_FROM - 1)).when(answered(1, notApplied))).toEqual(record(kept(notApplied, false)));
    const sealed = answered(1, notApplied, now + 1100, { contract: { probe: { sealing: true }, settleDelayMs: null } });
    expect(given(opened({ readingFrom: null }), sent(), settled({ verdict: { status: 'applied', result }, by: 'person' })).when(sealed)).toMatchObject({ events: [{ data: { contradicts: true } }, { type: 'CaseEscalated', data: { reason: 'contradictory' } }] });
  });

  test('where the same key was sent again nothing was claimed', () => {
    expect(given(...by({ status: 'same_key_again' })).when(answered(1, applied))).toEqual(record(kept(applied, false)));
  });
});

describe('an end of its own', () => {
  test.each(['succeeded', 'rejected', 'failed'] as const)('%s: settles the case', (outcome) => {
    expect(given(opened()).when(ended(outcome))).toEqual(
      record(settled({ verdict: { status: 'ended', outcome }, by: 'late_result', evidence: { kind: 'ledger', at: now + 50 }, because: `its own end came late: ${outcome}`, readAt: null })),
    );
  });

  test('of what has no open case says nothing', () => {
    expect(given().when(ended('succeeded'))).toEqual(ignore('case_unknown'));
    expect(given(opened(), settled({})).when(ended('succeeded'))).toEqual(ignore('already_settled'));
  });
});

describe('growing old', () => {
  const ageing = { ageing: { remindAfterMs: 60, escalateAfterMs: 90, escalateTo: 'boss' } };
  const old = opened({ remindAt: now + 60, escalateAt: now + 90, nextLookAt: null });

  test('reminds the owner, again and again, as long as it is open', () => {
    expect(given(old).when(due(now + 59, 'irreversible', ageing))).toEqual(ignore('not_due'));
    const first = record(CaseReminded({ ...ref, owner: 'payments@example.org', openForMs: 61, remindAt: now + 121 }));
    expect(given(old).when(due(now + 61, 'irreversible', ageing))).toEqual(first);
    expect(given(old, ...first.events).when(due(now + 120, 'irreversible', { ageing: { remindAfterMs: 60 } }))).toMatchObject({ events: [{ type: 'CaseEscalated' }] });
    expect(given(old, ...first.events).when(due(now + 121, 'irreversible', ageing))).toMatchObject({ events: [{ type: 'CaseReminded', data: { remindAt: now + 181 } }, { type: 'CaseEscalated' }] });
  });

  test('brings it to whom the contract names, once, and closes nothing', () => {
    const told = eventsOf(given(old).when(due(now + 1e9, 'irreversible', ageing)));
    expect(told).toMatchObject([{ type: 'CaseReminded' }, { type: 'CaseEscalated', data: { to: 'boss', reason: 'too_old', message: `open since ${isoTime(now)}: no end by its deadline` } }]);
    expect(given(old, ...told).when(due(now + 1e9 + 1, 'irreversible', ageing))).toEqual(ignore('not_due'));
    expect(caseIn([old, ...told])).toMatchObject({ status: 'open', escalateAt: null });
  });

  test('and a look come together', () => {
    expect(eventsOf(given(opened({ escalateAt: now + 90 })).when(due(now + 1000, 'irreversible', ageing))).map(({ type }) => type)).toEqual(['CaseEscalated', 'ProbeSent']);
  });

  test('is over with the verdict', () => {
    expect(given(old, settled({})).when(due(now + 1e9, 'irreversible', ageing))).toEqual(ignore('not_due'));
    expect(dueAt(caseIn([old, settled({})]))).toBeNull();
  });
});

test.each<UnknownCause>(['deadline', 'host_lost', 'heartbeat_lost', 'may_have_applied', 'accepted', 'partial_effect', 'refused_after_firing', 'contradiction'])('%s opens one case, named by step and attempt', (cause) => {
  const events = played([], open({ cause }), open({ cause }), open({ cause }));
  expect(events.filter(({ type }) => type === 'CaseOpened')).toHaveLength(1);
  expect(events[0]).toMatchObject({ data: { ...ref, cause, tool, since: now, readingFrom: NOT_AFTER + 5000 + SETTLE_DELAY_MS } });
});

test('a settled case still knows what was asked and answered', () => {
  const events = played([opened(), sent()], answered(1, pending), resolve(APPLIED));
  expect(caseIn(events)).toMatchObject({ status: 'settled', by: 'person', lastAnswer: pending });
  expect([...caseIn(events).probes.keys()]).toEqual([1]);
});
