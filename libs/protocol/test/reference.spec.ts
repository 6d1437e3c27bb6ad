import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from '@jest/globals';

it('the generated descriptions of topics, messages and addresses are what the schemas say', () => {
  const script = fileURLToPath(new URL('../../../scripts/generate-reference.mjs', import.meta.url));
  expect(() => execFileSync(process.execPath, [script, '--check'], { stdio: 'pipe' })).not.toThrow();
});
