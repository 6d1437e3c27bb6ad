import { ActionIcon, AppShell, Badge, Burger, Button, Group, NavLink as MantineNavLink, Stack, Text, Title, useComputedColorScheme, useMantineColorScheme } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { lazy, Suspense, useEffect, useRef, useState } from 'react';
import { Link, Navigate, Route, Routes, useLocation } from 'react-router';
import { api, bodyOf } from './api/client.js';
import { LiveProvider, useConnection } from './api/live.js';
import { onSignedOut, readKey, tellSignedOut } from './api/session.js';
import { BrakesPage } from './pages/brakes.js';
import { DeadLettersPage } from './pages/dead-letters.js';
import { InboxPage } from './pages/inbox.js';
import { PlanPage, PlansPage } from './pages/plans.js';
import { RunPage } from './pages/run.js';
import { RunsPage } from './pages/runs.js';
import { SignIn } from './pages/sign-in.js';
import { MeContext } from './parts/me.js';
import { Loaded, Loading } from './parts/states.js';

/** Charts are heavy, and only the board draws them. */
const BoardPage = lazy(() => import('./pages/board.js').then(({ BoardPage: page }) => ({ default: page })));

const PAGES = [
  ['/runs', 'Runs'],
  ['/inbox', 'Inbox'],
  ['/plans', 'Compensations'],
  ['/board', 'Board'],
  ['/dead-letters', 'Dead letters'],
  ['/brakes', 'Brakes'],
] as const;

export function App() {
  const queries = useQueryClient();
  const [signedIn, setSignedIn] = useState(() => readKey() !== null);
  const [why, setWhy] = useState<string | null>(null);
  useEffect(
    () =>
      onSignedOut((reason) => {
        queries.clear();
        setWhy(reason);
        setSignedIn(false);
      }),
    [queries],
  );
  if (!signedIn) return <SignIn why={why} onSignedIn={() => (setWhy(null), setSignedIn(true))} />;
  return (
    <LiveProvider>
      <Shell />
    </LiveProvider>
  );
}

function Shell() {
  const [opened, { toggle, close }] = useDisclosure();
  const { pathname } = useLocation();
  const me = useQuery({ queryKey: ['me'], queryFn: () => bodyOf(api.GET('/v1/me')), staleTime: Infinity });
  const main = useRef<HTMLDivElement>(null);
  useEffect(() => {
    close();
    const page = PAGES.find(([path]) => pathname.startsWith(path))?.[1];
    document.title = page === undefined ? 'Holdfast' : `${page} · Holdfast`;
  }, [pathname, close]);
  return (
    <AppShell header={{ height: 56 }} navbar={{ width: 200, breakpoint: 'sm', collapsed: { mobile: !opened } }} padding="md">
      <AppShell.Header>
        <a className="skip" href="#main" onClick={() => main.current?.focus()}>
          Skip to the page
        </a>
        <Group h="100%" px="md" justify="space-between" wrap="nowrap">
          <Group wrap="nowrap" gap="sm">
            <Burger opened={opened} onClick={toggle} hiddenFrom="sm" size="sm" aria-label={opened ? 'Close the menu' : 'Open the menu'} aria-expanded={opened} />
            <Text fw={700}>Holdfast</Text>
            <Connected />
          </Group>
          <Group wrap="nowrap" gap="xs">
            <ThemeToggle />
            <Button variant="default" size="xs" onClick={() => tellSignedOut(null)}>
              Sign out
            </Button>
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" aria-label="Pages">
        <Stack gap={2}>
          {PAGES.map(([path, name]) => (
            <MantineNavLink key={path} component={Link} to={path} label={name} active={pathname.startsWith(path)} variant="filled" {...(pathname.startsWith(path) ? { 'aria-current': 'page' as const } : {})} />
          ))}
        </Stack>
        {me.data !== undefined && (
          <Text size="sm" c="dimmed" mt="md" px="sm" className="wrap">
            {me.data.name}, tenant {me.data.tenant}
            <br />
            {me.data.roles.join(', ')}
          </Text>
        )}
      </AppShell.Navbar>
      <AppShell.Main id="main" ref={main} tabIndex={-1}>
        <Loaded query={me} what="who you are">
          {(principal) => (
            <MeContext value={principal}>
              <Suspense fallback={<Loading what="the page" />}>
                <Routes>
                  <Route path="/" element={<Navigate to="/runs" replace />} />
                  <Route path="/runs" element={<RunsPage />} />
                  <Route path="/runs/:run" element={<RunPage />} />
                  <Route path="/inbox" element={<InboxPage />} />
                  <Route path="/inbox/:kind/:id" element={<InboxPage />} />
                  <Route path="/plans" element={<PlansPage />} />
                  <Route path="/plans/:run" element={<PlanPage />} />
                  <Route path="/board" element={<BoardPage />} />
                  <Route path="/dead-letters" element={<DeadLettersPage />} />
                  <Route path="/brakes" element={<BrakesPage />} />
                  <Route path="*" element={<Nowhere />} />
                </Routes>
              </Suspense>
            </MeContext>
          )}
        </Loaded>
      </AppShell.Main>
    </AppShell>
  );
}

function Nowhere() {
  return (
    <>
      <Title order={1}>There is no such page</Title>
      <Text mt="sm">
        Go to the <Link to="/runs">runs</Link>.
      </Text>
    </>
  );
}

const SAYS = { connecting: ['tone-quiet', 'connecting'], live: ['tone-good', 'live'], lost: ['tone-warn', 'reconnecting'] } as const;

function Connected() {
  const [tone, says] = SAYS[useConnection()];
  return (
    <Badge role="status" className={tone} radius="sm" tt="none" title="Whether changes come by themselves">
      {says}
    </Badge>
  );
}

function ThemeToggle() {
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme('light', { getInitialValueInEffect: false });
  const other = scheme === 'dark' ? 'light' : 'dark';
  return (
    <ActionIcon variant="default" size={30} aria-label={`Switch to the ${other} theme`} onClick={() => setColorScheme(other)}>
      {/* Drawn, since not every machine has a font with such a sign. */}
      <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">
        <circle cx="8" cy="8" r="6.5" fill="none" stroke="currentColor" strokeWidth="2" />
        <path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" />
      </svg>
    </ActionIcon>
  );
}
