// `npm run test:mutation [-- --mutate 'packages/transport/src/qp/*.ts']`: mutants of packages/transport (docs/mutation.md).
/** A part of the whole may have a report of its own. */
const report = process.env.MUTATION_REPORT;

export default {
  testRunner: 'in-process',
  plugins: ['./test/mutation/runner.mjs'],
  // Whether mutants compile is not asked: they are bundled without a look at types.
  tsconfigFile: 'none.json',
  mutate: [
    'packages/transport/src/**/*.ts',
    '!packages/transport/src/**/*.test.ts',
    '!packages/transport/src/index.ts',
  ],
  mutator: { excludedMutations: ['StringLiteral'] },
  coverageAnalysis: 'perTest',
  ignoreStatic: false,
  concurrency: 2,
  timeoutMS: 20_000,
  timeoutFactor: 4,
  disableTypeChecks: false,
  allowEmpty: true,
  tempDirName: '.stryker-tmp',
  ignorePatterns: [
    '**',
    '!packages/**',
    '!test/**',
    '!package.json',
    '!tsconfig*.json',
    'packages/*/dist',
    'packages/*/node_modules',
    'test/fixtures',
  ],
  symlinkNodeModules: true,
  incremental: report === undefined,
  incrementalFile: 'test/mutation/.cache/incremental.json',
  reporters: ['json', 'clear-text', 'progress-append-only'],
  jsonReporter: { fileName: report ?? 'test/mutation/.cache/report.json' },
  clearTextReporter: { allowColor: false, logTests: false, reportTests: false },
};
