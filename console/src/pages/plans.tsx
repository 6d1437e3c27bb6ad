import { Button, Group, Paper, SegmentedControl, Stack, Text, Textarea, Title } from '@mantine/core';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useParams } from 'react-router';
import { api, bodyOf, type Compensation, type Plan, type PlanSummary } from '../api/client.js';
import { useRefresh } from '../api/live.js';
import { tool, words } from '../model/format.js';
import { outcomeTone, planTone } from '../model/tone.js';
import { Act } from '../parts/act.js';
import { columnsOf, DataTable } from '../parts/data-table.js';
import { Facts, Json, When } from '../parts/facts.js';
import { may, useMe } from '../parts/me.js';
import { More } from '../parts/more.js';
import { Empty, Loaded, Status } from '../parts/states.js';

/** What each state of a compensation means to whoever looks. */
const STANDS: Record<Compensation['stands'], string> = {
  compensated: 'answered in full',
  in_part: 'answered in part',
  never_happened: 'never happened: nothing to answer',
  stands: 'stands',
  failed: 'failed: it should not stand, and does',
  not_meant: 'not part of the plan',
  settle_first: 'waits until it is known what has happened',
  in_case: 'its compensation’s outcome is unknown: see its case',
  answering: 'is being answered',
  verifying: 'is being verified',
  approval: 'waits for a yes',
  arguments: 'waits for its arguments',
  turn: 'waits for its turn',
  no_answer: 'nothing answers it',
};

const column = columnsOf<PlanSummary>();
const columns = column.columns([
  column.display({ id: 'run', header: 'Run', cell: ({ row }) => <Link to={`/plans/${encodeURIComponent(row.original.run)}`}>{row.original.run}</Link> }),
  column.display({ id: 'status', header: 'State', cell: ({ row: { original: plan } }) => <Status name={plan.status} tone={planTone(plan.status)} /> }),
  column.display({ id: 'why', header: 'Why', cell: ({ row }) => row.original.causes.map(({ message, by }) => (by === null ? message : `${by}: ${message}`)).join('; ') }),
  column.display({ id: 'awaiting', header: 'To decide', cell: ({ row }) => String(row.original.awaiting) }),
  column.display({ id: 'steps', header: 'Effects', cell: ({ row }) => String(row.original.steps) }),
  column.display({ id: 'since', header: 'Since', cell: ({ row }) => <When at={row.original.since} /> }),
]);

const touches = (type: string): boolean => /^(Plan|Compensation|Arguments|Verification|EffectNoted|EffectDoubted)/.test(type);

export function PlansPage() {
  const [status, setStatus] = useState<'unfinished' | 'awaiting' | 'any'>('unfinished');
  const plans = useInfiniteQuery({
    queryKey: ['plans', status],
    initialPageParam: '',
    queryFn: ({ pageParam, signal }) => bodyOf(api.GET('/v1/plans', { signal, params: { query: { status, limit: 50, ...(pageParam === '' ? {} : { cursor: pageParam }) } } })),
    getNextPageParam: ({ next }) => next,
  });
  useRefresh(['plans'], ({ type }) => touches(type));
  return (
    <Stack>
      <Title order={1}>Compensations</Title>
      <Text>What runs did, and what answers it. A compensation is a new effect, never an undo: both stay on record.</Text>
      <SegmentedControl aria-label="Which plans" value={status} onChange={(value) => setStatus(value === 'any' || value === 'awaiting' ? value : 'unfinished')} data={[{ value: 'unfinished', label: 'Unfinished' }, { value: 'awaiting', label: 'To decide' }, { value: 'any', label: 'All' }]} w="fit-content" />
      <Loaded query={plans} what="plans">
        {({ pages }) => {
          const rows = pages.flatMap(({ items }) => items);
          return rows.length === 0 ? <Empty>{status === 'any' ? 'Nothing was ever compensated.' : 'None: nothing is left to answer.'}</Empty> : <DataTable caption="Plans, those open longest first" columns={columns} rows={rows} idOf={({ run }) => run} />;
        }}
      </Loaded>
      <More query={plans} />
    </Stack>
  );
}

export function PlanPage() {
  const { run = '' } = useParams();
  const plan = useQuery({ queryKey: ['plan', run], queryFn: ({ signal }) => bodyOf(api.GET('/v1/plans/{run}', { signal, params: { path: { run } } })) });
  useRefresh(['plan', run], ({ run: of, type }) => of === run && touches(type));
  return (
    <Stack>
      <Text size="sm">
        <Link to="/plans">Compensations</Link>
      </Text>
      <Group>
        <Title order={1} className="wrap">
          Compensation of {run}
        </Title>
        {plan.data !== undefined && <Status name={plan.data.status ?? 'no plan'} tone={planTone(plan.data.status)} />}
      </Group>
      <Loaded query={plan} what="the plan">{(known) => <OnePlan plan={known} />}</Loaded>
    </Stack>
  );
}

function OnePlan({ plan }: { readonly plan: Plan }) {
  return (
    <>
      <Facts
        of={[
          ['Run', <Link key="run" to={`/runs/${encodeURIComponent(plan.run)}`}>{plan.run}</Link>],
          ['It ended', plan.ending === null ? 'not yet' : words(plan.ending)],
          ['Plan', plan.plan],
          ['Since', plan.since === null ? null : <When key="since" at={plan.since} />],
          ['Concluded', plan.concludedAt === null ? null : <When key="concluded" at={plan.concludedAt} />],
          ['Why', plan.causes.length === 0 ? null : plan.causes.map(({ kind, message, by }) => `${by ?? words(kind)}: ${message}`).join('; ')],
        ]}
      />
      <Stack component="ol" gap="sm" p={0} m={0} style={{ listStyle: 'none' }}>
        {plan.effects.map((effect) => (
          <li key={effect.step}>
            <Answer run={plan.run} effect={effect} />
          </li>
        ))}
      </Stack>
      {plan.others.length > 0 && <Text>These stand, since no contract names what answers them: {plan.others.map(({ step, tool: of, outcome }) => `step ${step} (${of.name}, ${words(outcome)})`).join(', ')}.</Text>}
      {plan.earlier.length > 0 && (
        <details>
          <summary>Earlier plans of the run</summary>
          <ul>
            {plan.earlier.map((each) => (
              <li key={each.plan}>
                plan {each.plan}: {words(each.status)}, <When at={each.since} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function Answer({ run, effect }: { readonly run: string; readonly effect: Compensation }) {
  const me = useMe();
  const [deciding, setDeciding] = useState<'approve' | 'reject' | null>(null);
  const { step, stands, approval, next, parts } = effect;
  const done = Array.isArray(effect.answers) ? (effect.answers as { step: string; tool: { name: string; version: string }; evidence: string; verified: boolean; authorisedBy: string }[]) : [];
  return (
    <Paper withBorder p="sm" className={`mark ${outcomeTone(stands)}`} component="section" aria-label={`Step ${step}`}>
      <Group gap="xs">
        <Title order={2} className="wrap">
          {step} · {effect.tool.name}
        </Title>
        <Status name={STANDS[stands]} tone={outcomeTone(stands)} />
      </Group>
      <Facts
        of={[
          ['It was', effect.effect === null ? 'under way, as far as anybody knows' : `${words(effect.effect.status)}${effect.effect.message === '' ? '' : `: ${effect.effect.message}`}`],
          ['Why', effect.why],
          ['Answered with', effect.with === null ? (effect.pointOfNoReturn ? 'nothing: a point of no return' : 'nothing') : tool(effect.with)],
          ['Needs', effect.with === null ? null : effect.authority === null ? 'nobody’s yes' : `a yes by ${effect.authority.join(' or ')}`],
          ['Decided', approval === null || approval.by === null ? null : `${approval.status} by ${approval.by}${approval.reason === null ? '' : `: ${approval.reason}`}`],
          ['Until', effect.deadline === null || stands === 'compensated' ? null : <When key="deadline" at={effect.deadline} />],
          ['What answered it', done.length === 0 ? null : done.map((each) => `${tool(each.tool)} (step ${each.step}), authorised by ${each.authorisedBy}${each.verified ? ', verified' : ''}: ${each.evidence}`).join('; ')],
          ['What remains', effect.residual === null || effect.residual === undefined ? null : JSON.stringify(effect.residual)],
          ['Brought to people', effect.escalated.length === 0 ? null : effect.escalated.map(({ to, reason, message }) => `${to ?? 'whoever watches'} (${words(reason)}): ${message}`).join('; ')],
        ]}
      />
      <details open={stands === 'approval'}>
        <summary>What was called, and what would answer it</summary>
        <Json value={effect.args} label={`Arguments of step ${step}`} />
        {next !== null && (
          <>
            <Text size="sm" mt={4}>Exactly what would be called</Text>
            <Json value={next.args} label={`Arguments of what answers step ${step}`} />
          </>
        )}
        {parts.map((part) => (
          <Text key={part.step} size="sm" className="wrap">
            {part.step}: {tool(part.tool)}, {part.status === null ? 'under way' : words(part.status)}
            {part.message === null || part.message === '' ? '' : ` (${part.message})`}, authorised by {part.authorisedBy}, <When at={part.orderedAt} />
          </Text>
        ))}
      </details>
      {stands === 'approval' && next !== null && may(me, 'approver') && (
        <Group mt="xs">
          <Button onClick={() => setDeciding('approve')}>Approve</Button>
          <Button variant="outline" color="red.9" className="danger" onClick={() => setDeciding('reject')}>
            Let it stand
          </Button>
        </Group>
      )}
      {deciding !== null && next !== null && <Decision run={run} step={step} digest={next.digest} decision={deciding} onClose={() => setDeciding(null)} />}
    </Paper>
  );
}

function Decision({ run, step, digest, decision, onClose }: { readonly run: string; readonly step: string; readonly digest: string; readonly decision: 'approve' | 'reject'; readonly onClose: () => void }) {
  const [reason, setReason] = useState('');
  const yes = decision === 'approve';
  const act = (key: string): Promise<unknown> => {
    const params = { path: { run, step }, header: { 'Idempotency-Key': key } };
    return yes ? bodyOf(api.POST('/v1/plans/{run}/steps/{step}/approve', { params, body: { digest, ...(reason.trim() === '' ? {} : { reason: reason.trim() }) } })) : bodyOf(api.POST('/v1/plans/{run}/steps/{step}/reject', { params, body: { digest, reason: reason.trim() } }));
  };
  return (
    <Act title={yes ? `Answer step ${step}` : `Let step ${step} stand`} says={yes ? 'Exactly what is shown is called, once.' : 'The effect stays as it is, by your decision. The plan goes on without it.'} confirm={yes ? 'Approve' : 'Let it stand'} dangerous={!yes} ready={yes || reason.trim() !== ''} onClose={onClose} act={act}>
      <Textarea label={yes ? 'Why (may stay empty)' : 'Why'} value={reason} onChange={(event) => setReason(event.currentTarget.value)} required={!yes} autosize minRows={2} maxLength={2000} data-autofocus />
    </Act>
  );
}
