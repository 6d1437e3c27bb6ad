import { Alert, Badge, Button, Group, Loader, Stack, Text } from '@mantine/core';
import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Refused } from '../api/client.js';
import { words } from '../model/format.js';
import type { Tone } from '../model/tone.js';

export function Status({ name, tone }: { readonly name: string; readonly tone: Tone }) {
  return (
    <Badge className={`tone-${tone}`} radius="sm" tt="none">
      {words(name)}
    </Badge>
  );
}

/** What went wrong in words, and the way on. */
export function Failed({ error, again }: { readonly error: Error; readonly again?: () => void }) {
  const missing = error instanceof Refused && error.status === 404;
  return (
    <Alert role="alert" variant="outline" className="tone-bad" color="red.9" title={missing ? 'There is no such thing here' : error instanceof Refused && error.status === 403 ? 'Your key may not do this' : 'That did not work'}>
      <Stack gap="xs" align="flex-start">
        <Text size="sm" className="wrap">
          {error.message}
        </Text>
        {again !== undefined && (
          <Button variant="default" size="xs" onClick={again}>
            Try again
          </Button>
        )}
      </Stack>
    </Alert>
  );
}

export function Empty({ children }: { readonly children: ReactNode }) {
  return (
    <Text c="dimmed" py="md">
      {children}
    </Text>
  );
}

export function Loading({ what }: { readonly what: string }) {
  return (
    <Group role="status" py="md" gap="sm">
      <Loader size="sm" aria-hidden />
      <Text>Loading {what} …</Text>
    </Group>
  );
}

/** What is loaded stays on the screen when a later look fails; the failure is said above it. */
export function Loaded<T>({ query, what, children }: { readonly query: Pick<UseQueryResult<T>, 'data' | 'error' | 'refetch'>; readonly what: string; readonly children: (data: T) => ReactNode }) {
  const { data, error, refetch } = query;
  const failure = error === null ? null : <Failed error={error} again={() => void refetch()} />;
  if (data === undefined) return failure ?? <Loading what={what} />;
  return (
    <>
      {failure}
      {children(data)}
    </>
  );
}
