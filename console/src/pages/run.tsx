import { Anchor, Badge, Button, Group, Paper, Stack, Text, Title } from '@mantine/core';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useParams } from 'react-router';
import { api, bodyOf, Refused, type Run } from '../api/client.js';
import { useRefresh } from '../api/live.js';
import { count, took, tool, traceLink, words } from '../model/format.js';
import { runTone } from '../model/tone.js';
import { timelineOf } from '../model/timeline.js';
import { Facts, Json, When } from '../parts/facts.js';
import { useMe } from '../parts/me.js';
import { Empty, Loaded, Status } from '../parts/states.js';
import { RunActs } from './run-acts.js';
import { TimelineEntry } from './timeline-entry.js';

const PAGE = 100;

export function RunPage() {
  const { run: id = '' } = useParams();
  const path = { run: id };
  const run = useQuery({ queryKey: ['run', id], queryFn: ({ signal }) => bodyOf(api.GET('/v1/runs/{run}', { signal, params: { path } })) });
  useRefresh(['run', id], ({ run: of }) => of === id);
  return (
    <Stack>
      <Text size="sm">
        <Anchor component={Link} to="/runs">
          Runs
        </Anchor>
      </Text>
      <Group justify="space-between" align="flex-start">
        <Group>
          <Title order={1} className="wrap">
            {id}
          </Title>
          {run.data !== undefined && <Status name={run.data.status} tone={runTone(run.data.status)} />}
        </Group>
        {run.data !== undefined && <RunActs run={run.data} />}
      </Group>
      <Loaded query={run} what={`run ${id}`}>
        {(known) => (
          <>
            <Why run={known} />
            <About run={known} />
            <Timeline id={id} />
          </>
        )}
      </Loaded>
    </Stack>
  );
}

/** What it hangs on, first of all. */
function Why({ run }: { readonly run: Run }) {
  const lines: { text: string; to?: string; says?: string }[] = [
    ...run.unknowns.map(({ step, attempt, message }) => ({ text: `Nobody knows whether step ${step} happened: ${message}`, to: `/inbox/case/${encodeURIComponent(`${run.id}/${step}/${attempt}`)}`, says: 'Look at the case' })),
    ...run.waits.map(({ step, kind, name }) => (kind === 'approval' ? { text: `Step ${step} waits for an approval.`, to: `/inbox/approval/${encodeURIComponent(`${run.id}/${step}`)}`, says: 'Look at it' } : { text: `Step ${step} waits for ${kind}${name === null ? '' : ` “${name}”`}.` })),
    ...(run.stuck === null ? [] : [{ text: `It makes no progress, and hangs on: ${run.stuck.on}` }]),
    ...(run.quarantine === null ? [] : [{ text: `It is in quarantine: ${run.quarantine}` }]),
    ...(run.paused === null ? [] : [{ text: `${run.paused.by} holds it still: ${run.paused.reason}` }]),
    ...run.heldBy.map((brake) => ({ text: `The brake ${brake} holds it still.`, to: '/brakes', says: 'Look at the brakes' })),
    ...(run.cancel === null || run.endedAt !== null ? [] : [{ text: `${run.cancel.by} cancelled it: ${run.cancel.reason}` }]),
  ];
  if (lines.length === 0) return null;
  return (
    <Paper withBorder p="sm" component="section" aria-label="What it hangs on">
      <Stack gap={4}>
        {lines.map(({ text, to, says }) => (
          <Text key={text} className="wrap">
            {text} {to !== undefined && <Link to={to}>{says}</Link>}
          </Text>
        ))}
      </Stack>
    </Paper>
  );
}

function About({ run }: { readonly run: Run }) {
  const me = useMe();
  const trace = traceLink(me.traceUrl, run.trace);
  const runLink = (id: string) => <Link to={`/runs/${encodeURIComponent(id)}`}>{id}</Link>;
  return (
    <Paper withBorder p="sm" component="section" aria-label="About the run">
      <Facts
        of={[
          ['Agent', run.agent === null ? 'none: its loop is a client’s own' : tool(run.agent)],
          ['For', run.principal],
          ['Goal', run.goal],
          ['Started', <When key="at" at={run.acceptedAt} />],
          ['Ended', run.endedAt === null ? null : <When key="at" at={run.endedAt} />],
          ['Took', took(run.acceptedAt, run.endedAt)],
          ['Deadline', run.deadline === null ? null : <When key="at" at={run.deadline} />],
          ['Worker', run.worker],
          ['Recoveries', run.resumes === 0 ? null : count(run.resumes)],
          ['Steps at its end', run.steps === null ? null : `${run.steps.fresh} fresh, ${run.steps.replayed} replayed`],
          ['Refused intents', run.rejected === 0 ? null : count(run.rejected)],
          ['Tokens, cost', run.usage.tokens === 0 && run.usage.cost === 0 ? null : `${count(run.usage.tokens)}, ${run.usage.cost}`],
          ['Forked off', run.origin === null ? null : <>{runLink(run.origin.run)} from step {run.origin.from}</>],
          ['Parent', run.parent === null ? null : <>{runLink(run.parent.run)} step {run.parent.step}</>],
          ['Compensation', run.compensation === null ? null : <Link to={`/plans/${encodeURIComponent(run.id)}`}>{words(run.compensation)}</Link>],
          ['Trace', trace !== null ? <Anchor key="trace" href={trace} rel="noreferrer">{run.trace}</Anchor> : run.trace],
          ['Chain', <Chain key="chain" run={run} />],
        ]}
      />
      <details>
        <summary>Input{run.ending === null || run.ending === undefined ? '' : ' and ending'}</summary>
        <Json value={run.input} label="Input" />
        {run.ending !== null && run.ending !== undefined && <Json value={run.ending} label="Ending" />}
      </details>
    </Paper>
  );
}

/** Whether what is recorded of it is whole, counted again: at once when it is over, for one that changes when somebody asks. */
function Chain({ run }: { readonly run: Run }) {
  const [asked, setAsked] = useState(false);
  const chain = useQuery({ queryKey: ['run', run.id, 'integrity', run.version], queryFn: ({ signal }) => bodyOf(api.GET('/v1/runs/{run}/integrity', { signal, params: { path: { run: run.id } } })), staleTime: Infinity, enabled: asked || run.endedAt !== null, placeholderData: (before) => before });
  if (!asked && run.endedAt === null)
    return (
      <Button size="compact-xs" variant="default" onClick={() => setAsked(true)}>
        Check it
      </Button>
    );
  if (chain.error !== null) return <>can’t be checked now: {chain.error.message}</>;
  if (chain.data === undefined) return <>being checked …</>;
  const bad = chain.data.streams.filter(({ problem }) => problem !== null);
  if (bad.length > 0) return <Text c="red" component="strong">broken: {bad.map(({ topic, problem }) => `${topic}: ${problem ?? ''}`).join('; ')}</Text>;
  return (
    <>
      intact, {chain.data.streams.reduce((sum, { events }) => sum + events, 0)} events in {chain.data.streams.length} {chain.data.streams.length === 1 ? 'stream' : 'streams'}
    </>
  );
}

function Timeline({ id }: { readonly id: string }) {
  const path = { run: id };
  const page = (cursor: string) => ({ limit: PAGE, ...(cursor === '' ? {} : { cursor }) });
  const steps = useInfiniteQuery({ queryKey: ['run', id, 'steps'], initialPageParam: '', queryFn: ({ pageParam, signal }) => bodyOf(api.GET('/v1/runs/{run}/steps', { signal, params: { path, query: page(pageParam) } })), getNextPageParam: ({ next }) => next });
  const effects = useInfiniteQuery({ queryKey: ['run', id, 'effects'], initialPageParam: '', queryFn: ({ pageParam, signal }) => bodyOf(api.GET('/v1/runs/{run}/effects', { signal, params: { path, query: page(pageParam) } })), getNextPageParam: ({ next }) => next });
  const events = useInfiniteQuery({
    queryKey: ['run', id, 'events'],
    initialPageParam: '',
    queryFn: async ({ pageParam, signal }) => {
      const read = await bodyOf(api.GET('/v1/runs/{run}/events', { signal, params: { path, query: { limit: PAGE * 2, ...(pageParam === '' ? {} : { after: pageParam }) } } }));
      // Text comes only to who asks for a stream.
      if (typeof read === 'string') throw new Refused('The gateway answered with a stream.', 200);
      return read;
    },
    getNextPageParam: ({ next }) => next,
  });
  const more = [steps, effects, events].filter((query) => query.hasNextPage);
  return (
    <section aria-labelledby="timeline">
      <Group mb="xs">
        <Title order={2} id="timeline">
          What happened
        </Title>
        <Badge className="tone-quiet" radius="sm" tt="none">
          fresh: done by this worker
        </Badge>
        <Badge className="tone-busy" radius="sm" tt="none">
          replayed: taken from the record
        </Badge>
      </Group>
      <Loaded query={steps} what="steps">
        {(read) => {
          const entries = timelineOf(
            read.pages.flatMap(({ items }) => items),
            effects.data?.pages.flatMap(({ items }) => items) ?? [],
            events.data?.pages.flatMap(({ items }) => items) ?? [],
          );
          if (entries.length === 0) return <Empty>Nothing so far: its agent has not asked for anything yet.</Empty>;
          return (
            <Stack component="ol" gap="xs" p={0} m={0} style={{ listStyle: 'none' }}>
              {entries.map((entry) => (
                <li key={entry.kind === 'step' ? `step ${entry.step.step}` : entry.id}>
                  <TimelineEntry entry={entry} />
                </li>
              ))}
            </Stack>
          );
        }}
      </Loaded>
      {more.length > 0 && (
        <Button variant="default" mt="sm" loading={more.some(({ isFetchingNextPage }) => isFetchingNextPage)} onClick={() => more.forEach((query) => void query.fetchNextPage())}>
          Show more
        </Button>
      )}
    </section>
  );
}
