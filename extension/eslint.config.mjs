// The rules of `jlpm lint:code`: typescript-eslint's strict rules with type information, for sources and tests.

import js from '@eslint/js';
import { defineConfig } from 'eslint/config';
import tseslint from 'typescript-eslint';

export default defineConfig(
  {
    files: ['extension/{src,tests}/**/*.ts'],
    extends: [
      js.configs.recommended,
      tseslint.configs.strictTypeChecked,
      tseslint.configs.stylisticTypeChecked
    ],
    languageOptions: {
      parserOptions: {
        project: './extension/tsconfig.test.json',
        tsconfigRootDir: `${import.meta.dirname}/..`
      }
    },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      eqeqeq: 'error',
      '@typescript-eslint/consistent-type-exports': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/method-signature-style': 'error',
      // A `default` stands for all members of a union that no `case` names.
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true }
      ],
      // `async` also makes an error that is thrown a rejected promise.
      '@typescript-eslint/require-await': 'off',
      // `as string` names the type that an index has there.
      '@typescript-eslint/non-nullable-type-assertion-style': 'off',
      // `() => this.draw()` is a callback; that it returns nothing is in the callback's type.
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      // A second parameter `_` and `const { children: _, ...row }` say what is left out.
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      // Letters are counted by code points: `[...text].length`.
      '@typescript-eslint/no-misused-spread': ['error', { allow: [{ from: 'lib', name: 'string' }] }],
      // `''` is "no name" in the protocol, and `||` takes the next one.
      '@typescript-eslint/prefer-nullish-coalescing': ['error', { ignorePrimitives: { string: true } }],
      // A number has one text: `${width}px`.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }]
    }
  },
  {
    // Lumino's signals take a method and its `this`: `changed.connect(this.onChanged, this)`.
    files: ['extension/src/lab/**/*.ts'],
    rules: { '@typescript-eslint/unbound-method': 'off' }
  },
  {
    // Generated from the kernel's messages; an answer without fields is `{}`.
    files: ['extension/src/protocol/messages.ts'],
    rules: { '@typescript-eslint/no-generated-empty-object-type': 'off' }
  },
  {
    files: ['extension/tests/**/*.ts'],
    rules: {
      // A test fails by the `!` itself.
      '@typescript-eslint/no-non-null-assertion': 'off',
      // The test runner waits for its tests.
      '@typescript-eslint/no-floating-promises': [
        'error',
        { allowForKnownSafeCalls: [{ from: 'package', name: ['test'], package: 'node:test' }] }
      ]
    }
  }
);
