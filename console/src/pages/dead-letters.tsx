import { Button, Stack, Text, Title, VisuallyHidden } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, bodyOf, type DeadLetter } from '../api/client.js';
import { words } from '../model/format.js';
import { Act } from '../parts/act.js';
import { columnsOf, DataTable } from '../parts/data-table.js';
import { Json, When } from '../parts/facts.js';
import { may, useMe } from '../parts/me.js';
import { Empty, Loaded } from '../parts/states.js';

const column = columnsOf<DeadLetter>();
/** Topics whose messages the gateway sends again. */
const SENT_AGAIN = new Set(['agent.intents', 'tool.results']);

export function DeadLettersPage() {
  const me = useMe();
  const [chosen, setChosen] = useState<DeadLetter | null>(null);
  const letters = useInfiniteQuery({
    queryKey: ['dead-letters'],
    enabled: may(me, 'operator'),
    initialPageParam: '',
    queryFn: ({ pageParam, signal }) => bodyOf(api.GET('/v1/dead-letters', { signal, params: { query: { limit: 50, ...(pageParam === '' ? {} : { cursor: pageParam }) } } })),
    getNextPageParam: ({ next }) => next,
    refetchInterval: 10_000,
  });
  const columns = column.columns([
    column.display({ id: 'at', header: 'Since', cell: ({ row }) => <When at={row.original.at} /> }),
    column.display({ id: 'what', header: 'Message', cell: ({ row: { original: letter } }) => `${letter.type ?? 'of no type'} for ${letter.key ?? 'nobody'}, on ${letter.topic}/${letter.partition} at ${letter.offset}` }),
    column.display({
      id: 'why',
      header: 'Why it could not be taken',
      cell: ({ row: { original: letter } }) => (
        <>
          <strong>{words(letter.reason)}</strong>: {letter.message}
          <details>
            <summary>How it begins</summary>
            <Json value={letter.excerpt} label={`Beginning of ${letter.id}`} />
          </details>
        </>
      ),
    }),
    column.display({
      id: 'act',
      header: 'Act',
      cell: ({ row: { original: letter } }) =>
        SENT_AGAIN.has(letter.topic) ? (
          <Button size="xs" variant="default" onClick={() => setChosen(letter)}>
            Send again<VisuallyHidden> message {letter.id}</VisuallyHidden>
          </Button>
        ) : (
          'Whoever wrote it sends it again'
        ),
    }),
  ]);
  return (
    <Stack>
      <Title order={1}>Dead letters</Title>
      <Text>Messages that could not be taken. They are kept for 30 days; what is sent again is decided like any new message.</Text>
      {!may(me, 'operator') ? (
        <Empty>Operators see dead letters. Your key has: {me.roles.join(', ')}.</Empty>
      ) : (
        <Loaded query={letters} what="dead letters">
          {({ pages }) => {
            const rows = pages.flatMap(({ items }) => items);
            return rows.length === 0 ? <Empty>There are none: every message was taken.</Empty> : <DataTable caption="Dead letters, newest first" columns={columns} rows={rows} idOf={({ id }) => id} />;
          }}
        </Loaded>
      )}
      {letters.hasNextPage && (
        <Button variant="default" loading={letters.isFetchingNextPage} onClick={() => void letters.fetchNextPage()} w="fit-content">
          Show more
        </Button>
      )}
      {chosen !== null && (
        <Act title="Send the message again" says={`The message goes to ${chosen.topic} once more, exactly as it was. If what made it fail is still there, it comes back as another dead letter. What it asks for may be long over.`} confirm="Send again" onClose={() => setChosen(null)} act={(key) => bodyOf(api.POST('/v1/dead-letters/{letter}/redrive', { params: { path: { letter: chosen.id }, header: { 'Idempotency-Key': key } } }))} />
      )}
    </Stack>
  );
}
