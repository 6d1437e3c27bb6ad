import { Alert, Button, Group, Modal, Stack, Text } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useEffect, useState, type ReactNode } from 'react';
import { idempotencyKey } from '../api/client.js';
import { Failed } from './states.js';

interface Props {
  readonly title: string;
  /** What will happen, in words. */
  readonly says: ReactNode;
  readonly confirm: string;
  readonly dangerous?: boolean;
  readonly children?: ReactNode;
  /** False while something that it needs is missing. */
  readonly ready?: boolean;
  readonly onClose: () => void;
  /** Does it, under this Idempotency-Key: pressed again after a failure, it is still one act. */
  readonly act: (idempotency: string) => Promise<unknown>;
  readonly onDone?: (answer: unknown) => void;
}

/** Asks before something is done, does it once, and says what came of it. */
export function Act({ title, says, confirm, dangerous = false, children, ready = true, onClose, act, onDone }: Props) {
  const queries = useQueryClient();
  const [key] = useState(idempotencyKey);
  // The focus goes back to what was pressed: whoever has no mouse would be lost at the top of the page.
  const [before] = useState(() => document.activeElement);
  useEffect(() => () => void (before instanceof HTMLElement && before.focus()), [before]);
  const acting = useMutation({
    mutationFn: () => act(key),
    onSuccess: async (answer) => {
      await queries.invalidateQueries();
      onDone?.(answer);
    },
  });
  const pending = typeof acting.data === 'object' && acting.data !== null && 'location' in acting.data && !('event' in acting.data);
  return (
    <Modal opened onClose={onClose} returnFocus={false} attributes={{ header: { role: 'presentation' } }} title={title} centered size="lg" closeButtonProps={{ 'aria-label': 'Close' }}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (ready && !acting.isPending) acting.mutate();
        }}
      >
        <Stack>
          <Text component="div" size="sm">
            {says}
          </Text>
          {!acting.isSuccess && children}
          {acting.error !== null && <Failed error={acting.error} />}
          {acting.isSuccess && (
            <Alert role="status" variant="outline" color={pending ? 'yellow.9' : 'green.9'} title={pending ? 'Written, and not decided yet' : 'Done'}>
              <Text size="sm">{pending ? 'The service that owns it has not answered in time. It will; this page shows it then.' : 'It is on record, with your name.'}</Text>
            </Alert>
          )}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {acting.isSuccess ? 'Close' : 'Back'}
            </Button>
            {!acting.isSuccess && (
              <Button type="submit" loading={acting.isPending} disabled={!ready} color={dangerous ? 'red.9' : 'blue'}>
                {confirm}
              </Button>
            )}
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
