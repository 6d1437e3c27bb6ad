import nx from '@nx/eslint-plugin';
import jest from 'eslint-plugin-jest';
import tseslint from 'typescript-eslint';

const belongs = {
  domain: 'a domain is pure: it may import the kernel, the protocol and its own files; what talks to the world belongs in the service’s handlers or in libs/runtime',
  kafka: 'only libs/runtime talks to Kafka and PostgreSQL; use its ports',
};

export default tseslint.config(
  { ignores: ['**/dist/**', '**/node_modules/**', '.holdfast/**', '.nx/**', '.scratch/**', 'first.ts', 'first.js', 'jest.config.mjs', 'eslint.config.mjs', '**/*.mjs', '**/*.d.ts'] },
  ...tseslint.configs.strict,
  {
    files: ['**/*.ts', '**/*.tsx'],
    // What tsconfig.base.json says of decorators: a type in a constructor is a value.
    languageOptions: { parserOptions: { experimentalDecorators: true, emitDecoratorMetadata: true } },
    plugins: { '@nx': nx },
    rules: {
      'max-lines': ['error', { max: 400, skipBlankLines: true, skipComments: true }],
      'no-warning-comments': ['error', { terms: ['todo', 'fixme', 'xxx'] }],
      eqeqeq: 'error',
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-non-null-assertion': 'error',
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'inline-type-imports', disallowTypeAnnotations: false }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_', destructuredArrayIgnorePattern: '^_' }],
      '@typescript-eslint/no-extraneous-class': 'off', // Nest modules are classes without members.
      '@typescript-eslint/no-invalid-void-type': 'off',
      '@typescript-eslint/unified-signatures': 'off',
      '@nx/enforce-module-boundaries': [
        'error',
        {
          enforceBuildableLibDependency: false,
          banTransitiveDependencies: false,
          allow: [],
          depConstraints: [
            { sourceTag: 'scope:protocol', onlyDependOnLibsWithTags: [], allowedExternalImports: ['zod', 'canonicalize', '@noble/hashes/*', '@jest/globals', 'fast-check'] },
            { sourceTag: 'scope:kernel', onlyDependOnLibsWithTags: [], allowedExternalImports: ['@jest/globals', 'fast-check'] },
            { sourceTag: 'scope:runtime', onlyDependOnLibsWithTags: ['scope:kernel', 'scope:protocol'] },
            { sourceTag: 'scope:sdk', onlyDependOnLibsWithTags: ['scope:kernel', 'scope:protocol', 'scope:runtime'] },
            { sourceTag: 'scope:service', onlyDependOnLibsWithTags: ['scope:kernel', 'scope:protocol', 'scope:runtime'] },
            { sourceTag: 'scope:testing', onlyDependOnLibsWithTags: ['scope:kernel', 'scope:protocol', 'scope:runtime', 'scope:sdk', 'scope:service'] },
            { sourceTag: 'scope:app', onlyDependOnLibsWithTags: ['scope:kernel', 'scope:protocol', 'scope:runtime', 'scope:sdk', 'scope:service', 'scope:app'] },
            // It knows the product by its HTTP description alone.
            { sourceTag: 'scope:console', onlyDependOnLibsWithTags: [] },
            { sourceTag: 'scope:tests', onlyDependOnLibsWithTags: ['*'] },
          ],
        },
      ],
    },
  },
  {
    files: ['services/*/src/domain/**/*.ts', 'libs/kernel/src/**/*.ts'],
    rules: {
      'no-restricted-globals': ['error', ...['Date', 'setTimeout', 'setInterval', 'setImmediate', 'process', 'performance', 'crypto'].map((name) => ({ name, message: belongs.domain }))],
      'no-restricted-properties': ['error', { object: 'Math', property: 'random', message: belongs.domain }],
      'no-restricted-imports': [
        'error',
        { patterns: [{ regex: '^(node:|@nestjs/|typeorm|kafkajs|pg$|rxjs|@holdfast/(runtime|sdk|testing))', message: belongs.domain }, { regex: '^\\.\\./(?!domain/)', message: belongs.domain }] },
      ],
    },
  },
  {
    files: ['services/*/src/**/*.ts', 'libs/sdk/src/**/*.ts', 'libs/testing/src/**/*.ts'],
    ignores: ['services/*/src/domain/**', 'libs/sdk/src/host/pg-*.ts'],
    rules: { 'no-restricted-imports': ['error', { paths: [{ name: 'kafkajs', message: belongs.kafka }, { name: 'pg', message: belongs.kafka }] }] },
  },
  {
    files: ['**/*.spec.ts', '**/*.stack.ts'],
    plugins: { jest },
    rules: {
      'jest/no-focused-tests': 'error',
      'jest/no-disabled-tests': 'error',
      'jest/no-identical-title': 'error',
      'no-restricted-syntax': ['error', { selector: "CallExpression[callee.name='sleep']", message: 'tests wait on facts, never on clocks' }],
      '@typescript-eslint/no-non-null-assertion': 'error',
      'max-lines': ['error', { max: 500, skipBlankLines: true, skipComments: true }],
    },
  },
);
