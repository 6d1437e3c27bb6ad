import { Grid, NavLink, Paper, Stack, Text, Title } from '@mantine/core';
import { useInfiniteQuery, useQuery, type QueryKey } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Link, useParams } from 'react-router';
import { api, bodyOf } from '../api/client.js';
import { useRefresh } from '../api/live.js';
import { money, tool } from '../model/format.js';
import { When } from '../parts/facts.js';
import { Empty, Loaded } from '../parts/states.js';
import { ApprovalPage } from './approval.js';
import { CasePage } from './case.js';
import { More } from '../parts/more.js';

const PAGE = 50;

/** Whether something in the inbox may have changed. */
const MATTERS = /^(Case|Wait|Approval|RunFinished|Compensation|Plan)/;

/** What waits for a person: approvals that runs ask for, outcomes nobody knows, and compensations that need a yes. */
export function InboxPage() {
  const { kind, id = '' } = useParams();
  useRefresh(['inbox'], ({ type }) => MATTERS.test(type));
  return (
    <Stack>
      <Title order={1}>Inbox</Title>
      <Grid>
        <Grid.Col span={{ base: 12, md: 5 }} visibleFrom={kind === undefined ? undefined : 'md'}>
          <Lists chosen={kind === undefined ? null : `${kind}/${id}`} />
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 7 }}>
          {kind === undefined ? (
            <Text c="dimmed" visibleFrom="md">
              Choose something on the left: all that you need to decide is then here.
            </Text>
          ) : (
            <Paper withBorder p="md" component="section" aria-label="What is to be decided">
              <Text size="sm" mb="xs" hiddenFrom="md">
                <Link to="/inbox">All of the inbox</Link>
              </Text>
              {kind === 'approval' ? <ApprovalPage key={id} id={id} /> : kind === 'case' ? <CasePage key={id} id={id} /> : <Empty>There is no such thing in the inbox.</Empty>}
            </Paper>
          )}
        </Grid.Col>
      </Grid>
    </Stack>
  );
}

interface Item {
  readonly key: string;
  readonly to: string;
  readonly says: string;
  readonly about: ReactNode;
}

function Lists({ chosen }: { readonly chosen: string | null }) {
  const approvals = usePaged(['inbox', 'approvals'], (cursor, signal) => bodyOf(api.GET('/v1/approvals', { signal, params: { query: { limit: PAGE, ...cursor } } })));
  const cases = usePaged(['inbox', 'cases'], (cursor, signal) => bodyOf(api.GET('/v1/cases', { signal, params: { query: { status: 'open', limit: PAGE, ...cursor } } })));
  const plans = useQuery({ queryKey: ['inbox', 'plans'], queryFn: ({ signal }) => bodyOf(api.GET('/v1/plans', { signal, params: { query: { status: 'awaiting', limit: 200 } } })) });
  return (
    <Stack>
      <Section title="Approvals" more={<More query={approvals} />}>
        <Loaded query={approvals} what="approvals">
          {({ pages }) => <Items none="Nobody waits for an approval." chosen={chosen} of={pages.flatMap(({ items }) => items).map((each) => ({ key: `approval/${each.id}`, to: `/inbox/approval/${encodeURIComponent(each.id)}`, says: each.what, about: <>{[money(each.amount), tool(each.tool)].filter((part) => part !== null).join(' · ')} · asked <When at={each.since} /></> }))} />}
        </Loaded>
      </Section>
      <Section title="Cases: outcomes nobody knows" more={<More query={cases} />}>
        <Loaded query={cases} what="cases">
          {({ pages }) => <Items none="Every outcome is known." chosen={chosen} of={pages.flatMap(({ items }) => items).map((each) => ({ key: `case/${each.id}`, to: `/inbox/case/${encodeURIComponent(each.id)}`, says: `${each.tool.name} of run ${each.run}`, about: <>{each.message} · {each.owner ?? 'nobody’s'} · open <When at={each.since} /></> }))} />}
        </Loaded>
      </Section>
      <Section title="Compensations that need a yes" more={null}>
        <Loaded query={plans} what="compensations">
          {({ items }) => <Items none="No compensation waits for anybody." chosen={chosen} of={items.map((each) => ({ key: `plan/${each.run}`, to: `/plans/${encodeURIComponent(each.run)}`, says: `run ${each.run}`, about: <>{each.awaiting} to decide · since <When at={each.since} /></> }))} />}
        </Loaded>
      </Section>
    </Stack>
  );
}

function usePaged<Item>(queryKey: QueryKey, read: (cursor: { cursor?: string }, signal: AbortSignal) => Promise<{ items: Item[]; next: string | null }>) {
  return useInfiniteQuery({ queryKey, initialPageParam: '', queryFn: ({ pageParam, signal }) => read(pageParam === '' ? {} : { cursor: pageParam }, signal), getNextPageParam: ({ next }) => next });
}

function Section({ title, children, more }: { readonly title: string; readonly children: ReactNode; readonly more: ReactNode }) {
  return (
    <section aria-label={title}>
      <Title order={2}>{title}</Title>
      {children}
      {more}
    </section>
  );
}

function Items({ of, none, chosen }: { readonly of: readonly Item[]; readonly none: string; readonly chosen: string | null }) {
  if (of.length === 0) return <Empty>{none}</Empty>;
  return (
    <Stack component="ul" gap={2} p={0} m={0} style={{ listStyle: 'none' }}>
      {of.map(({ key, to, says, about }) => (
        <li key={key}>
          <NavLink component={Link} to={to} label={says} description={about} active={chosen === key} variant="filled" className="wrap" classNames={{ description: chosen === key ? 'on-filled' : '' }} {...(chosen === key ? { 'aria-current': 'true' as const } : {})} />
        </li>
      ))}
    </Stack>
  );
}
