import '@mantine/core/styles.css';
import '@mantine/charts/styles.css';
import './theme.css';
import { MantineProvider } from '@mantine/core';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router';
import { Refused } from './api/client.js';
import { App } from './app.js';
import { readable, theme } from './theme.js';

const RETRY_MAX_MS = 10_000;

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 1000,
      // A gateway that starts again comes back by itself; what it refused, it refuses again.
      retry: (times, error) => error instanceof Refused && (error.status === 0 || error.status >= 500 || error.status === 429) && times < 20,
      retryDelay: (times) => Math.min(RETRY_MAX_MS, 500 * 2 ** times),
    },
  },
});

const root = document.getElementById('root');
if (root === null) throw new Error('the page has no place for the console');
createRoot(root).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={readable} defaultColorScheme="auto">
      <QueryClientProvider client={queries}>
        <BrowserRouter>
          <App />
        </BrowserRouter>
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
