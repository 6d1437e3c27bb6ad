import type { TestWorld } from './test-world.js';

/** For jest: `expect.extend(matchers)`, then `await expect(world).toEqualUninterrupted()`. */
export const matchers = {
  async toEqualUninterrupted(world: TestWorld): Promise<{ pass: boolean; message: () => string }> {
    const difference = await world.difference();
    return { pass: difference === null, message: () => (difference === null ? 'the world equals the uninterrupted one' : `the world differs from the uninterrupted one:\n${difference}`) };
  },
};
