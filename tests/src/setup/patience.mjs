import { jest } from '@jest/globals';

// No measure of speed: only what hangs is ended. (jest hands a project's own `testTimeout` to nobody.)
jest.setTimeout(process.env.HOLDFAST_PROOF === 'full' ? 1_800_000 : 300_000);
