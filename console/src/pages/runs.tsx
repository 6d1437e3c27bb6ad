import { Button, Group, MultiSelect, Stack, Text, TextInput, Title } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { keepPreviousData, useInfiniteQuery, useQueryClient, type InfiniteData } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useSearchParams } from 'react-router';
import { api, bodyOf, type Run, type RunSummary } from '../api/client.js';
import { useLive } from '../api/live.js';
import { tool } from '../model/format.js';
import { touched, withRuns, type RunFilter, type RunPage } from '../model/live-runs.js';
import { NEEDS_SOMEBODY, RUN_STATUSES, runTone } from '../model/tone.js';
import { columnsOf, DataTable } from '../parts/data-table.js';
import { When } from '../parts/facts.js';
import { may, useMe } from '../parts/me.js';
import { Empty, Loaded, Status } from '../parts/states.js';
import { StartRun } from './start-run.js';

/** Rows of one page: the list is never read whole. */
const PAGE = 50;
/** Beyond this many changed runs at once the pages are read again instead. */
const ONE_BY_ONE_MAX = 20;

const column = columnsOf<RunSummary>();
const columns = column.columns([
  column.accessor('id', { header: 'Run', cell: ({ row }) => <Link to={`/runs/${encodeURIComponent(row.original.id)}`}>{row.original.id}</Link> }),
  column.accessor('status', { header: 'State', cell: ({ row: { original: run } }) => <Status name={run.status} tone={runTone(run.status)} /> }),
  column.display({ id: 'agent', header: 'Agent', cell: ({ row }) => (row.original.agent === null ? 'no agent' : tool(row.original.agent)) }),
  column.display({ id: 'unknown', header: 'Unknown', cell: ({ row }) => (row.original.unknown === 0 ? 'none' : `${row.original.unknown}`) }),
  column.display({ id: 'resumes', header: 'Recoveries', cell: ({ row }) => String(row.original.resumes) }),
  column.display({ id: 'started', header: 'Started', cell: ({ row }) => <When at={row.original.acceptedAt} /> }),
  column.display({ id: 'changed', header: 'Last change', cell: ({ row }) => <When at={row.original.updatedAt} /> }),
]);

const isStatus = (text: string): text is Run['status'] => (RUN_STATUSES as readonly string[]).includes(text);

export function RunsPage() {
  const me = useMe();
  const queries = useQueryClient();
  const [params, setParams] = useSearchParams();
  const [starting, setStarting] = useState(false);
  const written: RunFilter = { status: (params.get('status') ?? '').split(',').filter(isStatus), agent: params.get('agent') ?? '', id: params.get('id') ?? '' };
  const [filter] = useDebouncedValue(written, 250);
  const key = ['runs', filter.status.join(','), filter.agent, filter.id];
  const runs = useInfiniteQuery({
    queryKey: key,
    initialPageParam: '',
    queryFn: ({ pageParam, signal }): Promise<RunPage> =>
      bodyOf(api.GET('/v1/runs', { signal, params: { query: { limit: PAGE, ...(pageParam === '' ? {} : { cursor: pageParam }), ...(filter.status.length === 0 ? {} : { status: filter.status.join(',') }), ...(filter.agent === '' ? {} : { agent: filter.agent }), ...(filter.id === '' ? {} : { id: filter.id }) } } })),
    getNextPageParam: ({ next }) => next,
    placeholderData: keepPreviousData,
  });

  useLive((events) => {
    const pages = runs.data?.pages ?? [];
    if (events === null) return void queries.invalidateQueries({ queryKey: ['runs'] }, { cancelRefetch: false });
    const { changed, begun } = touched(events, new Set(pages.flatMap(({ items }) => items.map(({ id }) => id))));
    const asked = [...changed, ...begun];
    if (asked.length === 0) return undefined;
    // Read again is only what is shown: a cut-off stream may bring more than is worth asking for one by one.
    if (asked.length > ONE_BY_ONE_MAX) return void queries.invalidateQueries({ queryKey: ['runs'] }, { cancelRefetch: false });
    void Promise.allSettled(asked.map((run) => bodyOf(api.GET('/v1/runs/{run}', { params: { path: { run } } })))).then((read) => {
      const news = read.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
      queries.setQueryData<InfiniteData<RunPage>>(key, (data) => (data === undefined ? undefined : { ...data, pages: withRuns(data.pages, news, filter) }));
    });
  });

  const set = (name: string, value: string): void =>
    setParams(
      (before) => {
        const after = new URLSearchParams(before);
        if (value === '') after.delete(name);
        else after.set(name, value);
        return after;
      },
      { replace: true },
    );

  return (
    <Stack>
      <Group justify="space-between">
        <Title order={1}>Runs</Title>
        {may(me, 'agent') && <Button onClick={() => setStarting(true)}>Start a run</Button>}
      </Group>
      <Group align="flex-end" role="search" aria-label="Which runs">
        <MultiSelect label="State" data={RUN_STATUSES.map((value) => ({ value, label: value.replaceAll('_', ' ') }))} value={[...written.status]} onChange={(value) => set('status', value.join(','))} clearable clearButtonProps={{ 'aria-label': 'Any state' }} w={260} hidePickedOptions />
        <TextInput label="Agent" value={written.agent} onChange={(event) => set('agent', event.currentTarget.value.trim())} w={160} />
        <TextInput label="Id begins with" value={written.id} onChange={(event) => set('id', event.currentTarget.value)} w={200} />
        <Button variant="default" onClick={() => set('status', NEEDS_SOMEBODY.join(','))}>
          Those that need somebody
        </Button>
      </Group>
      <Loaded query={runs} what="runs">
        {({ pages }) => {
          const rows = pages.flatMap(({ items }) => items);
          if (rows.length === 0) return <Empty>{filter.id === '' && filter.agent === '' && filter.status.length === 0 ? 'No run so far. Start one here, or from a program.' : 'No run is like that. Take something out of the filters above.'}</Empty>;
          return (
            <>
              <DataTable caption="Runs, newest first" columns={columns} rows={rows} idOf={({ id }) => id} />
              <Group>
                <Text size="sm" aria-live="polite">
                  {rows.length} shown{runs.hasNextPage ? ', and there are more' : ', that is all'}
                </Text>
                {runs.hasNextPage && (
                  <Button variant="default" loading={runs.isFetchingNextPage} onClick={() => void runs.fetchNextPage()}>
                    Show more
                  </Button>
                )}
              </Group>
            </>
          );
        }}
      </Loaded>
      {starting && <StartRun onClose={() => setStarting(false)} />}
    </Stack>
  );
}
