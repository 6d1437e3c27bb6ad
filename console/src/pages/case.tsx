import { Alert, Button, Checkbox, Group, JsonInput, List, Stack, Text, Textarea, TextInput, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, bodyOf, type Case } from '../api/client.js';
import { caseAdvice } from '../model/advice.js';
import { tool, words } from '../model/format.js';
import { isJson } from '../model/json.js';
import { Act } from '../parts/act.js';
import { Facts, Json, useNow, When } from '../parts/facts.js';
import { may, useMe } from '../parts/me.js';
import { Attempts, RunContext } from '../parts/run-context.js';
import { Loaded, Status } from '../parts/states.js';
import { Reason } from './run-acts.js';

/** Why a case was brought to people. */
const ESCALATED: Readonly<Record<string, string>> = { too_old: 'it has been open for too long', nothing_helps: 'nothing that Holdfast can ask will settle it', contradictory: 'two answers contradict each other' };

type Doing = 'applied' | 'not_applied' | 'assign';

export function CasePage({ id }: { readonly id: string }) {
  const found = useQuery({ queryKey: ['inbox', 'case', id], queryFn: ({ signal }) => bodyOf(api.GET('/v1/cases/{case}', { signal, params: { path: { case: id } } })) });
  return <Loaded query={found} what="the case">{(of) => <Settle of={of} />}</Loaded>;
}

function Settle({ of }: { readonly of: Case }) {
  const me = useMe();
  const now = useNow();
  const [doing, setDoing] = useState<Doing | null>(null);
  return (
    <Stack gap="sm">
      <Group>
        <Title order={2} className="wrap">
          Did {of.tool.name} happen?
        </Title>
        <Status name={of.status} tone={of.status === 'open' ? 'bad' : 'good'} />
      </Group>
      <Text className="wrap">{of.message}</Text>
      <Facts
        of={[
          ['Call', `${tool(of.tool)}, ${of.effect}`],
          ['Why unknown', words(of.cause)],
          ['Attempt', of.attempt],
          ['Open', <When key="since" at={of.since} />],
          ['Owner', of.owner ?? 'nobody'],
          ['Brought up', of.escalated.length === 0 ? null : of.escalated.map((why) => ESCALATED[why] ?? words(why)).join('; ')],
          ['Next look', of.nextLookAt === null ? null : <When key="next" at={of.nextLookAt} />],
          ['Operation key', of.key],
          ['Target’s own id', of.operationId],
          ['Settled', of.settledAt === null ? null : <>{of.person ?? of.by ?? ''}{of.forced ? ', forced' : ''}, <When at={of.settledAt} /></>],
        ]}
      />
      <Text size="sm" fw={600}>What was called</Text>
      <Json value={of.args} label="Arguments" />
      {of.lastAnswer !== null && (
        <>
          <Text size="sm" fw={600}>What the probe said last</Text>
          <Json value={of.lastAnswer} label="Last answer of the probe" />
        </>
      )}
      {of.verdict !== null && (
        <>
          <Text size="sm" fw={600}>Verdict</Text>
          <Json value={of.verdict} label="Verdict" />
        </>
      )}
      <Attempts run={of.run} step={of.step} />
      <RunContext id={of.run} />
      {of.status === 'open' && (
        <Alert variant="outline" color="blue" className="tone-busy" title="Before you decide">
          <List size="sm">
            {caseAdvice(of, now).map((line) => (
              <List.Item key={line}>{line}</List.Item>
            ))}
          </List>
        </Alert>
      )}
      {of.status === 'open' &&
        (may(me, 'operator') ? (
          <Group>
            <Button onClick={() => setDoing('applied')}>It happened</Button>
            <Button variant="outline" color="red.9" className="danger" onClick={() => setDoing('not_applied')}>
              It did not happen
            </Button>
            <Button variant="default" onClick={() => setDoing('assign')}>
              Assign
            </Button>
          </Group>
        ) : (
          <Text size="sm">Your key may look at this, and not settle it: that takes the role “operator”.</Text>
        ))}
      {(doing === 'applied' || doing === 'not_applied') && <Resolve of={of} verdict={doing} onClose={() => setDoing(null)} />}
      {doing === 'assign' && <Assign of={of} onClose={() => setDoing(null)} />}
    </Stack>
  );
}

interface Props {
  readonly of: Case;
  readonly onClose: () => void;
}
const at = (of: Case, key: string) => ({ path: { case: of.id }, header: { 'Idempotency-Key': key } });

function Resolve({ of, verdict, onClose }: Props & { readonly verdict: 'applied' | 'not_applied' }) {
  const now = useNow();
  const [reason, setReason] = useState('');
  const [evidence, setEvidence] = useState('');
  const [result, setResult] = useState('null');
  const [force, setForce] = useState(false);
  const happened = verdict === 'applied';
  const early = !happened && (of.readingFrom === null || Date.parse(of.readingFrom) > now);
  return (
    <Act
      title={happened ? `${of.tool.name} happened` : `${of.tool.name} did not happen`}
      says={happened ? 'It counts as done, with the result you give. The run goes on with it.' : 'It counts as not done, and may be tried again. If it did happen after all, it happens twice.'}
      confirm={happened ? 'It happened' : 'It did not happen'}
      dangerous={!happened}
      ready={reason.trim() !== '' && evidence.trim() !== '' && (!happened || isJson(result))}
      onClose={onClose}
      act={(key) => bodyOf(api.POST('/v1/cases/{case}/resolve', { params: at(of, key), body: { verdict: happened ? { status: 'applied', result: JSON.parse(result) as unknown } : { status: 'not_applied' }, reason, evidence, ...(force ? { force } : {}) } }))}
    >
      <Reason value={reason} onChange={setReason} label="How you know" />
      <Textarea label="Evidence" description="What shows it: a statement, a ticket, a record’s number" value={evidence} onChange={(event) => setEvidence(event.currentTarget.value)} required autosize minRows={1} maxLength={2000} />
      {happened && <JsonInput label="Result" description="JSON, as the tool would have answered" value={result} onChange={setResult} autosize minRows={2} validationError="This is no JSON" />}
      {early && <Checkbox label="I know better: decide though a request may still be on its way" checked={force} onChange={(event) => setForce(event.currentTarget.checked)} />}
    </Act>
  );
}

function Assign({ of, onClose }: Props) {
  const me = useMe();
  const [owner, setOwner] = useState(me.name);
  return (
    <Act title="Assign the case" says="Whoever owns it is reminded of it." confirm="Assign" onClose={onClose} act={(key) => bodyOf(api.POST('/v1/cases/{case}/assign', { params: at(of, key), body: { owner: owner.trim() === '' ? null : owner.trim() } }))}>
      <TextInput label="Owner" description="empty: nobody" value={owner} onChange={(event) => setOwner(event.currentTarget.value)} data-autofocus />
    </Act>
  );
}
