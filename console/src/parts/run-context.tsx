import { List, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from 'react-router';
import { api, bodyOf, type Run } from '../api/client.js';
import { tool, words } from '../model/format.js';
import { runTone } from '../model/tone.js';
import { Facts, Json } from './facts.js';
import { Status } from './states.js';

export const useRun = (id: string) => useQuery({ queryKey: ['run', id], queryFn: ({ signal }): Promise<Run> => bodyOf(api.GET('/v1/runs/{run}', { signal, params: { path: { run: id } } })) });

/** The effect at a step with its attempts, where there is one: what was tried before. */
export const useEffectOf = (run: string, step: string) =>
  useQuery({
    queryKey: ['run', run, 'effect', step],
    queryFn: async ({ signal }) => {
      for (let cursor: string | null = ''; cursor !== null; ) {
        const page: { items: { step: string; attempts: { attempt: number; end: string | null; message: string | null; sentAt: string | null }[] }[]; next: string | null } = await bodyOf(api.GET('/v1/runs/{run}/effects', { signal, params: { path: { run }, query: { limit: 200, ...(cursor === '' ? {} : { cursor }) } } }));
        const found = page.items.find((each) => each.step === step);
        if (found !== undefined) return found;
        cursor = page.next;
      }
      return null;
    },
  });

/** Who asks, and for what: enough to decide without leaving the page. */
export function RunContext({ id }: { readonly id: string }) {
  const { data: run } = useRun(id);
  if (run === undefined) return null;
  return (
    <>
      <Facts
        of={[
          ['Run', <Link key="run" to={`/runs/${encodeURIComponent(id)}`}>{id}</Link>],
          ['State', <Status key="state" name={run.status} tone={runTone(run.status)} />],
          ['Asked by', run.agent === null ? 'a client' : `agent ${tool(run.agent)}`],
          ['For', run.principal],
          ['Goal', run.goal],
        ]}
      />
      <details>
        <summary>What the run was asked</summary>
        <Json value={run.input} label="Input of the run" />
      </details>
    </>
  );
}

export function Attempts({ run, step }: { readonly run: string; readonly step: string }) {
  const { data: effect } = useEffectOf(run, step);
  if (effect === undefined || effect === null || effect.attempts.length === 0) return null;
  return (
    <>
      <Text size="sm" fw={600}>What was tried</Text>
      <List size="sm">
        {effect.attempts.map(({ attempt, end, message }) => (
          <List.Item key={attempt}>
            attempt {attempt}: {end === null ? 'under way' : words(end)}
            {message === null ? '' : `, ${message}`}
          </List.Item>
        ))}
      </List>
    </>
  );
}
