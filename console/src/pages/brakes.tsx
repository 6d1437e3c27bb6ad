import { Button, Group, Select, Stack, Text, TextInput, Title, VisuallyHidden } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, bodyOf, type Brake } from '../api/client.js';
import { Act } from '../parts/act.js';
import { columnsOf, DataTable } from '../parts/data-table.js';
import { When } from '../parts/facts.js';
import { may, useMe } from '../parts/me.js';
import { Empty, Loaded } from '../parts/states.js';
import { Reason } from './run-acts.js';

const LOOK_MS = 5000;
const column = columnsOf<Brake>();

export function BrakesPage() {
  const me = useMe();
  const [setting, setSetting] = useState(false);
  const [releasing, setReleasing] = useState<string | null>(null);
  const brakes = useQuery({ queryKey: ['brakes'], queryFn: ({ signal }) => bodyOf(api.GET('/v1/brakes', { signal })), refetchInterval: LOOK_MS });
  const columns = column.columns([
    column.accessor('brake', { header: 'Held still' }),
    column.accessor('by', { header: 'By' }),
    column.accessor('reason', { header: 'Why' }),
    column.display({ id: 'since', header: 'Since', cell: ({ row }) => <When at={row.original.since} /> }),
    column.display({ id: 'lanes', header: 'Lanes', cell: ({ row: { original: brake } }) => (brake.lanes === brake.of ? 'all' : `${brake.lanes} of ${brake.of}: set it again to reach the others`) }),
    column.display({ id: 'act', header: 'Act', cell: ({ row }) => (may(me, 'operator') ? <Button size="xs" variant="default" onClick={() => setReleasing(row.original.brake)}>Let go<VisuallyHidden> {row.original.brake}</VisuallyHidden></Button> : '–') }),
  ]);
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={1}>Brakes</Title>
        {may(me, 'operator') && <Button onClick={() => setSetting(true)}>Hold something still</Button>}
      </Group>
      <Text>A brake holds a tool, an agent or your tenant still: nothing new of it is sent, what is under way ends. A single run is paused on its own page.</Text>
      <Loaded query={brakes} what="brakes">
        {({ items }) => (items.length === 0 ? <Empty>Nothing is held still.</Empty> : <DataTable caption="What is held still" columns={columns} rows={items} idOf={({ brake }) => brake} />)}
      </Loaded>
      {setting && <SetBrake tenant={me.tenant} onClose={() => setSetting(false)} />}
      {releasing !== null && <Act title={`Let ${releasing} go`} says="What it held goes on at once." confirm="Let go" onClose={() => setReleasing(null)} act={(key) => bodyOf(api.POST('/v1/brakes/{brake}/release', { params: { path: { brake: releasing }, header: { 'Idempotency-Key': key } } }))} />}
    </Stack>
  );
}

function SetBrake({ tenant, onClose }: { readonly tenant: string; readonly onClose: () => void }) {
  const [kind, setKind] = useState('tool');
  const [name, setName] = useState('');
  const [reason, setReason] = useState('');
  const brake = kind === 'tenant' ? `tenant:${tenant}` : `${kind}:${name.trim()}`;
  return (
    <Act title="Hold something still" says={kind === 'tenant' ? `Every run of the tenant ${tenant} is held still.` : `Nothing new of this ${kind} is sent, for all tenants.`} confirm="Hold still" dangerous ready={reason.trim() !== '' && (kind === 'tenant' || name.trim() !== '')} onClose={onClose} act={(key) => bodyOf(api.POST('/v1/brakes/{brake}/set', { params: { path: { brake }, header: { 'Idempotency-Key': key } }, body: { reason } }))}>
      <Select label="What" data={[{ value: 'tool', label: 'a tool' }, { value: 'agent', label: 'an agent' }, { value: 'tenant', label: 'the whole tenant' }]} value={kind} onChange={(value) => setKind(value ?? 'tool')} allowDeselect={false} />
      {kind !== 'tenant' && <TextInput label="Name" description="NAME, or NAME@VERSION for one version" value={name} onChange={(event) => setName(event.currentTarget.value)} required />}
      <Reason value={reason} onChange={setReason} />
    </Act>
  );
}
