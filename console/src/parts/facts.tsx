import { Table, Text, Tooltip } from '@mantine/core';
import { useEffect, useState, type ReactNode } from 'react';
import { away, moment } from '../model/format.js';

/** Names and values; those without a value are left out. */
export function Facts({ of }: { readonly of: readonly (readonly [string, ReactNode])[] }) {
  return (
    <Table variant="vertical" layout="fixed" withTableBorder={false} verticalSpacing={4}>
      <Table.Tbody>
        {of
          .filter(([, value]) => value !== null && value !== undefined && value !== '')
          .map(([name, value]) => (
            <Table.Tr key={name}>
              <Table.Th w={130} fw={500} style={{ background: 'transparent' }}>
                {name}
              </Table.Th>
              <Table.Td className="wrap">{value}</Table.Td>
            </Table.Tr>
          ))}
      </Table.Tbody>
    </Table>
  );
}

export function Json({ value, label }: { readonly value: unknown; readonly label: string }) {
  return (
    <pre className="json" tabIndex={0} role="region" aria-label={label}>
      {JSON.stringify(value, null, 2)}
    </pre>
  );
}

const TICK_MS = 1000;

/** The time of now, for as long as somebody looks. */
export function useNow(everyMs = TICK_MS): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** How long ago, with the exact time for whoever asks: also in text, not only on hovering. */
export function When({ at }: { readonly at: string }) {
  const now = useNow();
  return (
    <Tooltip label={moment(at)} events={{ hover: true, focus: true, touch: true }}>
      <time dateTime={at} title={moment(at)}>
        {away(at, now)}
      </time>
    </Tooltip>
  );
}

export function Quiet({ children }: { readonly children: ReactNode }) {
  return (
    <Text span c="dimmed" size="sm">
      {children}
    </Text>
  );
}
