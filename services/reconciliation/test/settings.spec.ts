import { describe, expect, it } from '@jest/globals';
import { readReceiver } from '../src/notify/settings.js';

describe('whoever is told of cases', () => {
  it('is nobody where nothing is set, also where it is passed as empty', () => {
    expect(readReceiver({})).toBeNull();
    expect(readReceiver({ HOLDFAST_WEBHOOK_URL: '', HOLDFAST_WEBHOOK_SECRET: '' })).toBeNull();
  });

  it('is told where both are set', () => {
    expect(readReceiver({ HOLDFAST_WEBHOOK_URL: 'https://desk.example/cases', HOLDFAST_WEBHOOK_SECRET: 'whsec_1' })).toEqual({ url: 'https://desk.example/cases', secret: 'whsec_1' });
  });

  it.each([
    [{ HOLDFAST_WEBHOOK_URL: 'https://desk.example/cases' }, /HOLDFAST_WEBHOOK_URL and HOLDFAST_WEBHOOK_SECRET go together/],
    [{ HOLDFAST_WEBHOOK_URL: 'desk', HOLDFAST_WEBHOOK_SECRET: 'whsec_1' }, /settings are wrong or missing: HOLDFAST_WEBHOOK_URL: /],
  ])('is refused as %j, by name', (environment, message) => {
    expect(() => readReceiver(environment)).toThrow(message);
  });
});
