import { Badge, Group, Paper, Table, Text } from '@mantine/core';
import { took, tool, words } from '../model/format.js';
import type { Entry } from '../model/timeline.js';
import { outcomeTone } from '../model/tone.js';
import { Facts, Json, Quiet, When } from '../parts/facts.js';
import { Status } from '../parts/states.js';

export function TimelineEntry({ entry }: { readonly entry: Entry }) {
  return entry.kind === 'step' ? <StepEntry entry={entry} /> : <EventEntry entry={entry} />;
}

function EventEntry({ entry: { title, detail, who, at, tone } }: { readonly entry: Extract<Entry, { kind: 'event' }> }) {
  return (
    <div className={`mark ${tone}`}>
      <Text size="sm" className="wrap">
        <strong>{title}</strong>
        {who !== null && ` by ${who}`}
        {detail !== null && detail !== '' && `: ${detail}`} <Quiet><When at={at} /></Quiet>
      </Text>
    </div>
  );
}

const member = (value: unknown, name: string): unknown => (typeof value === 'object' && value !== null && name in value ? (value as Record<string, unknown>)[name] : undefined);
const status = (outcome: unknown): string | null => {
  const found = member(outcome, 'status');
  return typeof found === 'string' ? found : null;
};

/** How a step stands, in one word. */
function stands({ step, effect }: Extract<Entry, { kind: 'step' }>): string {
  if (step.call !== null) return status(step.call.outcome) ?? effect?.status ?? 'under way';
  if (step.record !== null) return 'recorded';
  if (step.failed !== null) return step.failed.retryAt === null ? 'failed' : 'retry_scheduled';
  const wait = step.wait;
  return status(wait?.end) ?? (wait?.abandoned === true ? 'abandoned' : 'waiting');
}

function StepEntry({ entry }: { readonly entry: Extract<Entry, { kind: 'step' }> }) {
  const { step, effect } = entry;
  const how = stands(entry);
  const what = { call: 'call', record: step.record?.as ?? 'recorded work', try: step.failed?.as ?? 'recorded work', wait: 'wait for' }[step.kind];
  const length = took(step.askedAt, step.endedAt);
  return (
    <Paper withBorder p="xs" className={`mark ${outcomeTone(how)}`}>
      <Group gap="xs">
        <Text fw={600} className="wrap">
          {step.step} · {what} {step.name}
        </Text>
        <Status name={how} tone={outcomeTone(how)} />
        <Badge className={step.replayed ? 'tone-busy' : 'tone-quiet'} radius="sm" tt="none">
          {step.replayed ? 'replayed' : 'fresh'}
        </Badge>
        {step.call !== null && <Quiet>{step.call.effect}, {step.call.fire}</Quiet>}
        <Quiet>
          <When at={step.askedAt} />
          {length !== null && `, took ${length}`}
        </Quiet>
      </Group>
      {effect !== null && effect.attempts.length > 0 && (
        <Table className="cards" mt={4} captionSide="top">
          <Table.Caption>Attempts</Table.Caption>
          <Table.Thead>
            <Table.Tr>
              {['Attempt', 'Why', 'Sent', 'End', 'Said'].map((name) => (
                <Table.Th key={name} scope="col">{name}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {effect.attempts.map((attempt) => (
              <Table.Tr key={attempt.attempt}>
                <Table.Td data-label="Attempt">{attempt.attempt}</Table.Td>
                <Table.Td data-label="Why">{attempt.because === null ? 'fired by its worker' : words(attempt.because)}</Table.Td>
                <Table.Td data-label="Sent">{attempt.sentAt === null ? '–' : <When at={attempt.sentAt} />}</Table.Td>
                <Table.Td data-label="End">{attempt.end === null ? 'under way' : words(attempt.end)}</Table.Td>
                <Table.Td data-label="Said" className="wrap">{attempt.message ?? '–'}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
      {effect?.alarm !== null && effect?.alarm !== undefined && <Text fw={700}>{effect.alarm === 'DuplicateEffectDetected' ? 'It happened twice.' : 'Two answers contradict each other.'}</Text>}
      <details>
        <summary>{step.call === null ? 'What was recorded' : 'Arguments and evidence'}</summary>
        {step.call !== null && (
          <>
            <Facts
              of={[
                ['Tool', tool(step.call.tool)],
                ['Target', step.call.target],
                ['Operation key', step.call.key],
                ['Owned by', effect?.owner === null || effect?.owner === undefined ? null : `run ${effect.owner.run}, step ${effect.owner.step}`],
                ['Settled by', effect?.reconciled === null || effect?.reconciled === undefined ? null : `${effect.reconciled.by}${effect.reconciled.forced ? ', forced' : ''}`],
                ['Next try', effect?.retryAt === null || effect?.retryAt === undefined ? null : <When key="retry" at={effect.retryAt} />],
              ]}
            />
            <Json value={step.call.args} label={`Arguments of step ${step.step}`} />
            <Text size="sm" mt={4}>Outcome and evidence</Text>
            <Json value={step.call.outcome ?? effect?.outcome ?? 'none so far'} label={`Outcome of step ${step.step}`} />
          </>
        )}
        {step.call === null && <Json value={step.record ?? step.failed ?? step.wait} label={`Record of step ${step.step}`} />}
      </details>
    </Paper>
  );
}
