import { LineChart } from '@mantine/charts';
import { Group, Paper, SegmentedControl, SimpleGrid, Stack, Table, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, bodyOf } from '../api/client.js';
import { figureViews, linesIn, pointOf, tick, type FiguresRead, type FigureView } from '../model/board.js';
import { moment } from '../model/format.js';
import { Loaded, Status } from '../parts/states.js';

const HOUR_MS = 3_600_000;
const SPANS = [
  { value: String(HOUR_MS), label: 'Hour' },
  { value: String(24 * HOUR_MS), label: 'Day' },
  { value: String(7 * 24 * HOUR_MS), label: 'Week' },
  { value: String(30 * 24 * HOUR_MS), label: 'Month' },
];
const BUCKETS = 48;
const LOOK_MS = 15_000;
const COLOURS = ['blue.6', 'orange.7', 'grape.6'];

export function BoardPage() {
  const [span, setSpan] = useState(String(24 * HOUR_MS));
  const figures = useQuery({
    queryKey: ['figures', span],
    refetchInterval: LOOK_MS,
    queryFn: ({ signal }) => {
      const now = Date.now();
      return bodyOf(api.GET('/v1/figures', { signal, params: { query: { from: new Date(now - Number(span)).toISOString(), to: new Date(now).toISOString(), bucketMs: Math.ceil(Number(span) / BUCKETS) } } }));
    },
  });
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={1}>Board</Title>
        <SegmentedControl aria-label="Of how long" value={span} onChange={setSpan} data={SPANS} />
      </Group>
      <Loaded query={figures} what="figures">
        {(read) => (
          <SimpleGrid cols={{ base: 1, sm: 2, xl: 4 }}>
            {figureViews(read).map((figure) => (
              <Figure key={figure.id} figure={figure} of={read} />
            ))}
          </SimpleGrid>
        )}
      </Loaded>
    </Stack>
  );
}

function Figure({ figure: { id, name, value, says, fine, lines: possible }, of }: { readonly figure: FigureView; readonly of: FiguresRead }) {
  const span = Date.parse(of.to) - Date.parse(of.from);
  const lines = linesIn(of.series, possible);
  const points = of.series.map((bucket) => ({ at: bucket.at, ...Object.fromEntries(lines.map(({ of: line }) => [line, pointOf(bucket, line)])) }) as { readonly at: string; readonly [line: string]: string | number | null });
  const data = points.map((point) => ({ ...point, at: tick(point.at, span) }));
  const busy = points.filter((point) => lines.some(({ of: line }) => typeof point[line] === 'number' && point[line] !== 0));
  return (
    <Paper withBorder p="sm" component="section" aria-labelledby={`figure-${id}`}>
      <Group justify="space-between" wrap="nowrap" align="flex-start">
        <Title order={2} id={`figure-${id}`}>
          {name}
        </Title>
        {!fine && <Status name="look at it" tone="bad" />}
      </Group>
      <Text fz={28} fw={700} data-figure={id}>
        {value}
      </Text>
      <Text size="sm" mih={42}>
        {says}
      </Text>
      <div aria-hidden="true">
        <LineChart h={140} data={data} dataKey="at" series={lines.map(({ of: counted, name: label }, index) => ({ name: counted, label, color: COLOURS[index] ?? 'blue.6' }))} curveType="stepAfter" dotProps={{ r: 2 }} withLegend lineChartProps={{ accessibilityLayer: false }} />
      </div>
      <details>
        <summary>The same in numbers</summary>
        <div className="scroll" tabIndex={0} role="region" aria-label={`${name} in numbers`}>
          {busy.length === 0 ? (
            <Text size="sm">Nothing happened in this time.</Text>
          ) : (
            <Table>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th scope="col">From</Table.Th>
                  {lines.map(({ of: counted, name: label }) => (
                    <Table.Th key={counted} scope="col">
                      {label}
                    </Table.Th>
                  ))}
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {busy.map((bucket) => (
                  <Table.Tr key={bucket.at}>
                    <Table.Td>{moment(bucket.at)}</Table.Td>
                    {lines.map(({ of: counted }) => (
                      <Table.Td key={counted}>{bucket[counted] ?? '–'}</Table.Td>
                    ))}
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          )}
        </div>
      </details>
    </Paper>
  );
}
