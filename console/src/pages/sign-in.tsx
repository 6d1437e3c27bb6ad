import { Alert, Button, Center, Code, Paper, PasswordInput, Stack, Text, Title } from '@mantine/core';
import { useState } from 'react';
import { Failed } from '../parts/states.js';
import { Refused } from '../api/client.js';
import { keepKey } from '../api/session.js';

/** Asks the gateway who a key is, before anything is kept. */
async function check(key: string): Promise<void> {
  const response = await fetch('/v1/me', { headers: { authorization: `Bearer ${key}` } }).catch(() => null);
  if (response === null) throw new Refused('The gateway does not answer.', 0);
  if (response.status === 401) throw new Refused('The gateway does not know this key: it is mistyped, revoked or has expired.', 401);
  if (!response.ok) throw new Refused(`The gateway answered ${response.status}.`, response.status);
}

export function SignIn({ why, onSignedIn }: { readonly why: string | null; readonly onSignedIn: () => void }) {
  const [key, setKey] = useState('');
  const [error, setError] = useState<Error | null>(null);
  const [asking, setAsking] = useState(false);
  const submit = async (): Promise<void> => {
    setAsking(true);
    setError(null);
    try {
      await check(key.trim());
      keepKey(key.trim());
      onSignedIn();
    } catch (refused) {
      setError(refused instanceof Error ? refused : new Error(String(refused)));
    } finally {
      setAsking(false);
    }
  };
  return (
    <Center component="main" mih="100vh" p="md">
      <Paper withBorder p="lg" maw={440} w="100%">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void submit();
          }}
        >
          <Stack>
            <Title order={1}>Holdfast</Title>
            {why !== null && (
              <Alert role="status" variant="outline" color="yellow.9">
                {why}
              </Alert>
            )}
            <PasswordInput label="API key" description="Made with “holdfast keys create”; a local stack’s own is in .holdfast/dev-key." placeholder="hf_…" value={key} onChange={(event) => setKey(event.currentTarget.value)} autoComplete="off" required data-autofocus visibilityToggleButtonProps={{ 'aria-label': 'Show the key' }} />
            {error !== null && <Failed error={error} />}
            <Button type="submit" loading={asking} disabled={key.trim() === ''}>
              Sign in
            </Button>
            <Text size="sm" c="dimmed">
              The key is kept in this tab alone (<Code>sessionStorage</Code>), until you close it or sign out. Pages on the same address could read it: serve nothing else there.
            </Text>
          </Stack>
        </form>
      </Paper>
    </Center>
  );
}
