import { Button, Checkbox, Group, JsonInput, Radio, Stack, Table, Text, Textarea, TextInput } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useNavigate } from 'react-router';
import { api, bodyOf, type Run } from '../api/client.js';
import { tool } from '../model/format.js';
import { isJson } from '../model/json.js';
import { isOver } from '../model/tone.js';
import { Act } from '../parts/act.js';
import { may, useMe } from '../parts/me.js';
import { Failed, Loading } from '../parts/states.js';

type What = 'signal' | 'pause' | 'resume' | 'release' | 'cancel' | 'compensate' | 'retry' | 'fork';
const NAMES: Record<What, string> = { signal: 'Signal', pause: 'Pause', resume: 'Resume', release: 'Let out of quarantine', cancel: 'Cancel', compensate: 'Compensate', retry: 'Retry', fork: 'Fork' };

export function RunActs({ run }: { readonly run: Run }) {
  const me = useMe();
  const [what, setWhat] = useState<What | null>(null);
  const over = isOver(run);
  const possible: What[] = [];
  if (may(me, 'agent') && !over) possible.push('signal');
  if (may(me, 'operator')) {
    if (!over) possible.push(run.paused === null ? 'pause' : 'resume');
    if (run.quarantine !== null) possible.push('release');
    if (!over && run.cancel === null) possible.push('cancel');
    if (over) possible.push('compensate');
    if (over && run.status !== 'completed') possible.push('retry');
    possible.push('fork');
  }
  const close = (): void => setWhat(null);
  return (
    <Group gap="xs">
      {possible.map((each) => (
        <Button key={each} size="xs" variant={each === 'cancel' || each === 'compensate' ? 'outline' : 'default'} color={each === 'cancel' || each === 'compensate' ? 'red.9' : 'blue'} className={each === 'cancel' || each === 'compensate' ? 'danger' : ''} onClick={() => setWhat(each)}>
          {NAMES[each]}
        </Button>
      ))}
      {what === 'signal' && <Signal run={run} onClose={close} />}
      {what === 'compensate' && <Compensate run={run} onClose={close} />}
      {(what === 'retry' || what === 'fork') && <Again run={run} how={what} onClose={close} />}
      {what === 'cancel' && <Cancel run={run} onClose={close} />}
      {(what === 'pause' || what === 'resume' || what === 'release') && <Simple run={run} what={what} onClose={close} />}
    </Group>
  );
}

interface Props {
  readonly run: Run;
  readonly onClose: () => void;
}
const at = (run: Run, key: string) => ({ path: { run: run.id }, header: { 'Idempotency-Key': key } });

export function Reason({ value, onChange, label = 'Why' }: { readonly value: string; readonly onChange: (value: string) => void; readonly label?: string }) {
  return <Textarea label={label} description="It is kept on record, with your name." value={value} onChange={(event) => onChange(event.currentTarget.value)} required autosize minRows={2} maxLength={2000} data-autofocus />;
}

function Signal({ run, onClose }: Props) {
  const wanted = run.waits.find(({ kind }) => kind === 'signal')?.name ?? '';
  const [name, setName] = useState(wanted);
  const [payload, setPayload] = useState('null');
  return (
    <Act title={`Signal ${run.id}`} says="The run hears it when it waits for a signal of this name, now or later." confirm="Send" ready={name !== '' && isJson(payload)} onClose={onClose} act={(key) => bodyOf(api.POST('/v1/runs/{run}/signal', { params: at(run, key), body: { name, payload: JSON.parse(payload) as unknown } }))}>
      <TextInput label="Name" value={name} onChange={(event) => setName(event.currentTarget.value)} required data-autofocus />
      <JsonInput label="Payload" description="JSON" value={payload} onChange={setPayload} autosize minRows={2} validationError="This is no JSON" />
    </Act>
  );
}

function Simple({ run, what, onClose }: Props & { readonly what: 'pause' | 'resume' | 'release' }) {
  const [reason, setReason] = useState('');
  const says = {
    pause: 'Nothing new of it is sent. What is under way ends as it ends.',
    resume: 'It goes on where it stands.',
    release: 'It goes on, since you have looked into it. What made it go into quarantine may come again.',
  }[what];
  const act = (key: string): Promise<unknown> => {
    const params = at(run, key);
    if (what === 'resume') return bodyOf(api.POST('/v1/runs/{run}/resume', { params }));
    return what === 'pause' ? bodyOf(api.POST('/v1/runs/{run}/pause', { params, body: { reason } })) : bodyOf(api.POST('/v1/runs/{run}/release', { params, body: { reason } }));
  };
  return (
    <Act title={`${NAMES[what]}: ${run.id}`} says={says} confirm={NAMES[what]} ready={what === 'resume' || reason.trim() !== ''} onClose={onClose} act={act}>
      {what !== 'resume' && <Reason value={reason} onChange={setReason} label={what === 'release' ? 'What you found' : 'Why'} />}
    </Act>
  );
}

function Cancel({ run, onClose }: Props) {
  const [reason, setReason] = useState('');
  const [manner, setManner] = useState<'graceful' | 'immediate'>('graceful');
  const [tree, setTree] = useState(false);
  return (
    <Act title={`Cancel ${run.id}`} says="Nothing new of it is sent, and it never runs again. What it has done stands, unless it is compensated." confirm="Cancel the run" dangerous ready={reason.trim() !== ''} onClose={onClose} act={(key) => bodyOf(api.POST('/v1/runs/{run}/cancel', { params: at(run, key), body: { reason, manner, scope: tree ? 'tree' : 'run' } }))}>
      <Reason value={reason} onChange={setReason} />
      <Radio.Group label="What is under way" value={manner} onChange={(value) => setManner(value === 'immediate' ? 'immediate' : 'graceful')}>
        <Stack gap={4} mt={4}>
          <Radio value="graceful" label="ends first" />
          <Radio value="immediate" label="is not waited for; its end is recorded when it comes" />
        </Stack>
      </Radio.Group>
      <Checkbox label="Cancel its children, too" checked={tree} onChange={(event) => setTree(event.currentTarget.checked)} />
    </Act>
  );
}

function Again({ run, how, onClose }: Props & { readonly how: 'retry' | 'fork' }) {
  const navigate = useNavigate();
  const [from, setFrom] = useState('');
  const ready = how === 'retry' || /^[1-9]\d*(\.[1-9]\d*)*$/.test(from);
  const act = (key: string): Promise<unknown> => (how === 'retry' ? bodyOf(api.POST('/v1/runs/{run}/retry', { params: at(run, key), body: {} })) : bodyOf(api.POST('/v1/runs/{run}/fork', { params: at(run, key), body: { from } })));
  return (
    <Act
      title={how === 'retry' ? `Retry ${run.id}` : `Fork ${run.id}`}
      says={how === 'retry' ? 'A new run begins at the step that failed. What came before is replayed from the record, and fires nothing again.' : 'A new run begins at the step you name. What came before is replayed from the record, and fires nothing again; that step and all after it are done anew.'}
      confirm={NAMES[how]}
      ready={ready}
      onClose={onClose}
      act={act}
      onDone={(answer) => {
        const forked = (answer as { data?: { run?: string } }).data?.run;
        if (forked !== undefined) void navigate(`/runs/${encodeURIComponent(forked)}`);
      }}
    >
      {how === 'fork' && <TextInput label="From step" description="such as 3 or 3.1" value={from} onChange={(event) => setFrom(event.currentTarget.value)} required data-autofocus />}
    </Act>
  );
}

function Compensate({ run, onClose }: Props) {
  const [reason, setReason] = useState('');
  const seen = useQuery({ queryKey: ['run', run.id, 'forecast'], queryFn: () => bodyOf(api.POST('/v1/runs/{run}/compensate', { params: { path: { run: run.id } }, body: { reason: 'only to look', dryRun: true } })), retry: false, staleTime: 0 });
  const forecast = seen.data !== undefined && 'would' in seen.data ? seen.data : null;
  return (
    <Act title={`Compensate ${run.id}`} says="New effects answer what the run did, as its contracts say. Nothing is undone: what was done and what answers it both stay on record." confirm="Compensate" dangerous ready={reason.trim() !== '' && (forecast?.would.length ?? 0) + (forecast?.unsettled.length ?? 0) > 0} onClose={onClose} act={(key) => bodyOf(api.POST('/v1/runs/{run}/compensate', { params: at(run, key), body: { reason, dryRun: false } }))}>
      {seen.error !== null ? <Failed error={seen.error} /> : forecast === null ? <Loading what="what it would lead to" /> : null}
      {forecast !== null && (
        <Stack gap="xs">
          {forecast.would.length > 0 && (
            <Table className="cards" captionSide="top">
              <Table.Caption>What would be called, in this order</Table.Caption>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th scope="col">Answers step</Table.Th>
                  <Table.Th scope="col">Call</Table.Th>
                  <Table.Th scope="col">Needs</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {forecast.would.map((each) => (
                  <Table.Tr key={each.step}>
                    <Table.Td data-label="Answers step">{each.step}</Table.Td>
                    <Table.Td data-label="Call">{tool(each.tool)}</Table.Td>
                    <Table.Td data-label="Needs">{each.approvers === null ? 'nobody’s yes' : `a yes by ${each.approvers.join(' or ')}`}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          )}
          {forecast.unsettled.map(({ step, tool: of }) => (
            <Text key={step} size="sm">Step {step} ({of.name}) is not settled: that comes first, and it is answered if it happened.</Text>
          ))}
          {forecast.stand.map(({ step, tool: of, why }) => (
            <Text key={step} size="sm">Step {step} ({of.name}) stands: {why}.</Text>
          ))}
        </Stack>
      )}
      <Reason value={reason} onChange={setReason} />
    </Act>
  );
}
