import { availableParallelism } from 'node:os';

/** One transform and one resolver for every project: sources are read directly, never from dist. */
const shared = {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  testEnvironmentOptions: { customExportConditions: ['@holdfast/source', 'node', 'node-addons'] },
  transform: { '^.+\\.ts$': ['@swc/jest', {}] },
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
  modulePathIgnorePatterns: ['<rootDir>/.*/dist/', '<rootDir>/.holdfast/', '<rootDir>/.nx/'],
};

export default {
  // Tests on the real stack mostly wait for each other's servers: two at once fit on two cores. A proof goes
  // one by one: what fails there must not be the other suite's doing.
  maxWorkers: process.env.HOLDFAST_PROOF === 'full' ? 1 : Math.min(4, Math.max(2, availableParallelism() - 1)),
  projects: [
    {
      ...shared,
      displayName: 'unit',
      setupFilesAfterEnv: ['<rootDir>/tests/src/setup/patience.mjs', '<rootDir>/tests/src/setup/properties.mjs'],
      testMatch: ['<rootDir>/{libs,services}/*/test/**/*.spec.ts', '<rootDir>/{cli,console,deploy,examples}/test/**/*.spec.ts', '<rootDir>/tests/src/**/*.spec.ts'],
    },
    {
      ...shared,
      displayName: 'stack',
      setupFilesAfterEnv: ['<rootDir>/tests/src/setup/patience.mjs'],
      testMatch: ['<rootDir>/{libs,services}/*/test/**/*.stack.ts', '<rootDir>/{cli,deploy,examples,tests}/**/*.stack.ts'],
      globalSetup: '<rootDir>/tests/src/setup/start.mjs',
      globalTeardown: '<rootDir>/tests/src/setup/stop.mjs',
    },
  ],
};
