import { Autocomplete, JsonInput, TextInput } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useNavigate } from 'react-router';
import { api, bodyOf } from '../api/client.js';
import { Act } from '../parts/act.js';
import { isJson } from '../model/json.js';

/** `NAME@VERSION` as the parts of it; null where it is none. */
function agentIn(text: string): { name: string; version: string } | null {
  const at = text.lastIndexOf('@');
  return at > 0 && at < text.length - 1 ? { name: text.slice(0, at), version: text.slice(at + 1) } : null;
}

export function StartRun({ onClose }: { readonly onClose: () => void }) {
  const navigate = useNavigate();
  const agents = useQuery({ queryKey: ['contracts', 'agent'], queryFn: () => bodyOf(api.GET('/v1/contracts', { params: { query: { kind: 'agent', limit: 200 } } })) });
  const [agent, setAgent] = useState('');
  const [input, setInput] = useState('{}');
  const [runId, setRunId] = useState('');
  const named = agentIn(agent);
  return (
    <Act
      title="Start a run"
      says="The run starts under your name. The same id and input again is the same run."
      confirm="Start"
      ready={named !== null && isJson(input)}
      onClose={onClose}
      act={(key) => bodyOf(api.POST('/v1/runs', { params: { header: { 'Idempotency-Key': key } }, body: { agent: named, input: JSON.parse(input) as unknown, ...(runId.trim() === '' ? {} : { runId: runId.trim() }) } }))}
      onDone={(answer) => {
        const { id, run } = answer as { id?: string; run?: string };
        void navigate(`/runs/${encodeURIComponent(id ?? run ?? '')}`);
      }}
    >
      <Autocomplete label="Agent" description="name@version, as its workers declare it" data={agents.data?.items.map(({ name, version }) => `${name}@${version}`) ?? []} value={agent} onChange={setAgent} required data-autofocus error={agent !== '' && named === null ? 'An agent is name@version' : null} />
      <JsonInput label="Input" description="JSON" value={input} onChange={setInput} autosize minRows={4} maxRows={16} validationError="This is no JSON" />
      <TextInput label="Run id" description="made up where you leave it out" value={runId} onChange={(event) => setRunId(event.currentTarget.value)} />
    </Act>
  );
}
