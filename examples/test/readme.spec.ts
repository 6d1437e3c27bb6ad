import { readFile } from 'node:fs/promises';
import { describe, expect, it } from '@jest/globals';

const root = new URL('../../', import.meta.url);

describe('the README', () => {
  it('shows the first agent as it stands in the examples', async () => {
    const [readme, code] = await Promise.all(['README.md', 'examples/src/first-agent.ts'].map((file) => readFile(new URL(file, root), 'utf8')));
    expect(readme).toContain(`\`\`\`ts first.ts\n${code}\`\`\``);
    expect((code ?? '').trimEnd().split('\n').length).toBeLessThan(40);
  });
});
