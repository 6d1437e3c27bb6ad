import { Alert, Button, Group, List, Stack, Text, Textarea, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, bodyOf, type Approval } from '../api/client.js';
import { approvalAdvice } from '../model/advice.js';
import { money, tool } from '../model/format.js';
import { Act } from '../parts/act.js';
import { Facts, Json, useNow, When } from '../parts/facts.js';
import { may, useMe } from '../parts/me.js';
import { Attempts, RunContext, useRun } from '../parts/run-context.js';
import { Loaded, Status } from '../parts/states.js';

export function ApprovalPage({ id }: { readonly id: string }) {
  const approval = useQuery({ queryKey: ['inbox', 'approval', id], queryFn: ({ signal }) => bodyOf(api.GET('/v1/approvals/{approval}', { signal, params: { path: { approval: id } } })) });
  return <Loaded query={approval} what="the approval">{(of) => <Decide of={of} />}</Loaded>;
}

function Decide({ of }: { readonly of: Approval }) {
  const me = useMe();
  const now = useNow();
  const run = useRun(of.run);
  const [deciding, setDeciding] = useState<'approve' | 'reject' | null>(null);
  return (
    <Stack gap="sm">
      <Group>
        <Title order={2} className="wrap">
          {of.what}
        </Title>
        <Status name={of.status} tone={of.status === 'open' ? 'busy' : of.status === 'approved' ? 'good' : 'quiet'} />
      </Group>
      <Facts
        of={[
          ['Call', tool(of.tool)],
          ['Target', of.target],
          ['Amount', of.amount === null ? 'none stated' : <strong key="amount">{money(of.amount)}</strong>],
          ['Asked', <When key="since" at={of.since} />],
          ['Answer by', of.deadline === null ? 'no deadline' : <When key="deadline" at={of.deadline} />],
          ['May decide', of.approvers.join(' or ')],
          ['Decided by', of.decidedBy],
          ['They said', of.feedback],
        ]}
      />
      <Text size="sm" fw={600}>Exactly what would be called</Text>
      <Json value={of.args} label="Arguments" />
      <RunContext id={of.run} />
      <Attempts run={of.run} step={of.step} />
      {of.status === 'open' && (
        <Alert variant="outline" color="blue" className="tone-busy" title="Before you decide">
          <List size="sm">
            {approvalAdvice(of, run.data?.principal ?? null, me.name, now).map((line) => (
              <List.Item key={line}>{line}</List.Item>
            ))}
          </List>
        </Alert>
      )}
      {of.status === 'open' &&
        (may(me, 'approver') ? (
          <Group>
            <Button onClick={() => setDeciding('approve')}>Approve</Button>
            <Button variant="outline" color="red.9" className="danger" onClick={() => setDeciding('reject')}>
              Reject
            </Button>
          </Group>
        ) : (
          <Text size="sm">Your key may look at this, and not decide: that takes the role “approver”.</Text>
        ))}
      {deciding !== null && <Decision of={of} decision={deciding} onClose={() => setDeciding(null)} />}
    </Stack>
  );
}

function Decision({ of, decision, onClose }: { readonly of: Approval; readonly decision: 'approve' | 'reject'; readonly onClose: () => void }) {
  const [feedback, setFeedback] = useState('');
  const yes = decision === 'approve';
  const act = (key: string): Promise<unknown> => {
    const params = { path: { approval: of.id }, header: { 'Idempotency-Key': key } };
    const said = feedback.trim() === '' ? {} : { feedback: feedback.trim() };
    return yes ? bodyOf(api.POST('/v1/approvals/{approval}/approve', { params, body: { digest: of.digest, ...said } })) : bodyOf(api.POST('/v1/approvals/{approval}/reject', { params, body: { digest: of.digest, feedback: feedback.trim() } }));
  };
  return (
    <Act title={yes ? `Approve: ${of.what}` : `Reject: ${of.what}`} says={yes ? `${tool(of.tool)} may be called once with exactly what was shown${of.amount === null ? '' : `, for ${money(of.amount) ?? ''}`}.` : 'It is not called. The agent hears what you say here, and goes on without it.'} confirm={yes ? 'Approve' : 'Reject'} dangerous={!yes} ready={yes || feedback.trim() !== ''} onClose={onClose} act={act}>
      <Textarea label={yes ? 'Word to the agent (may stay empty)' : 'Why'} value={feedback} onChange={(event) => setFeedback(event.currentTarget.value)} autosize minRows={2} maxLength={4000} required={!yes} data-autofocus />
    </Act>
  );
}
