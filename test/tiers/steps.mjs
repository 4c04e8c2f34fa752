/**
 * The steps of `.ci/run` and `npm run test:long` (docs/testing.md). Add a row to add a step.
 *
 * name     Unique; `npm run test:long -- NAME` runs the step alone.
 * command  For bash, from the root of the repository. Its output is shown; vitest's counts in it are added up, and its last
 *          line `result: TEXT` goes into the table of results.
 * minutes  The budget on two cores. The step is ended and fails when it is used up.
 * env      Environment variables in addition to those of the run. A function gets the hash of the commit.
 * required Of LONG: what asks for the step ("issue 10, 3"). CI fails while docs/test-long.md has no passed row of that name.
 *
 * A CI step changes no tracked file. A budget is about twice what the step takes on a quiet machine: it ends a step that hangs, and
 * a machine may be slow. CI_MINUTES is the budget of CI's steps together, below the time at which CI itself would end them.
 */
export const CI_MINUTES = 85;

/**
 * The minutes of a step, by its own budget and by the rest of its tier's.
 *
 * @param {number} minutes of the step
 * @param {number} tier minutes of all steps; Infinity
 * @param {number} elapsed ms since the first step began
 */
export const minutesLeft = (minutes, tier, elapsed) =>
  Math.max(0, Math.round(10 * Math.min(minutes, tier - elapsed / 60_000)) / 10);

/** The tests with the tag `slow`, which `npm test` leaves out, one file after the other: some of them measure time. */
const SLOW = `npx vitest run --tags-filter=slow --maxWorkers=1 $(git grep -l "tags: \\['slow'\\]" -- '*.test.ts')`;

/** The half of the slow tests that a commit runs: together with another one it runs all. */
const half = (commit) => ({ ROCE_SLOW_HALF: `${(Number.parseInt(commit.slice(-1), 16) % 2 || 0) + 1}/2` });

/** Steps of `.ci/run`, in this order. */
export const CI = [
  { name: 'test', minutes: 18, command: 'npm test' },
  { name: 'unused code', minutes: 1, command: 'npm run knip' },
  { name: 'empty root', minutes: 4, command: 'node test/empty-root/run.mjs' },
  { name: 'slow tests', minutes: 14, command: `${SLOW} --shard=$ROCE_SLOW_HALF`, env: half },
  {
    name: 'seeds',
    minutes: 4,
    command:
      'npx vitest run test/sim-random test/sim-mixed test/sim-nics test/sim-xrc test/sim-recovery test/sim-cm',
    env: { ROCE_SIM_SEEDS: 30 },
  },
  {
    name: 'differential',
    minutes: 3,
    command: 'npx vitest run test/sim-differential test/sim-hostile',
    env: { ROCE_SIM_SEEDS: 300 },
  },
  {
    name: 'sim lives',
    minutes: 4,
    command: 'npx vitest run test/sim-life test/sim-duplicates',
    env: { ROCE_SIM_SEEDS: 20, ROCE_SIM_MODELS: 3 }, // Of each of seven workloads: 140 in all.
  },
  {
    name: 'sim busy',
    minutes: 2,
    command: 'npx vitest run test/sim-busy test/sim-polling',
    env: { ROCE_SIM_SEEDS: 5 },
  },
  {
    name: 'captures',
    minutes: 2,
    command: 'npx vitest run test/capture-sim.test.ts test/capture-sim-counts.test.ts',
    env: { ROCE_CAPTURE_SEEDS: 100, ROCE_CAPTURE_COUNTS: 12 },
  },
  {
    name: 'hostile',
    minutes: 3,
    command:
      "npx vitest run --tags-filter='!slow' test/hostile-packets test/hostile-insider test/hostile-link test/hostile-decoders test/cm-hostile test/raw-packet",
    env: {
      ROCE_HOSTILE_PACKETS: 50_000,
      ROCE_HOSTILE_DECODERS: 4000,
      ROCE_HOSTILE_MADS: 20_000,
      ROCE_RAW_FRAMES: 20_000,
    },
  },
  {
    name: 'interop debian12',
    minutes: 30,
    command: 'npm run test:interop',
    env: (commit) => ({ ROCE_SAMPLE: commit || 'no commit' }),
  },
  {
    name: 'interop debian13',
    minutes: 30,
    command: 'npm run test:interop -- --guest debian13',
    env: (commit) => ({ ROCE_SAMPLE: commit || 'no commit' }),
  },
  {
    name: 'interop xdp',
    minutes: 6,
    command: 'npm run test:interop -- data.test errors.test pingpong.test faults.test',
    env: (commit) => ({
      ROCE_INTEROP_LINK: 'xdp',
      ROCE_GUEST_MTU: 9000,
      ROCE_SAMPLE: commit || 'no commit',
    }),
  },
  { name: 'long results', minutes: 1, command: 'node test/tiers/results.mjs' },
];

/** Steps of `npm run test:long`, in this order. */
export const LONG = [
  { name: 'test', minutes: 15, command: 'npm test' },
  { name: 'empty root', minutes: 30, command: 'node test/empty-root/run.mjs test' },
  { name: 'slow tests', minutes: 20, command: SLOW },
  {
    name: 'programs',
    minutes: 60,
    command: 'npx vitest run test/programs.test.ts test/hostile-program.test.ts',
    env: { ROCE_PROGRAM_KILLS: 500, ROCE_HOSTILE_PROGRAM_SECONDS: 600 },
  },
  {
    name: 'perftest programs',
    minutes: 40,
    command: 'npx vitest run test/programs-perftest.test.ts',
    env: { ROCE_PROGRAM_PERFTEST: 'all' },
  },
  {
    name: 'programs of Debian 13',
    minutes: 20,
    command: 'npx vitest run test/programs-userland.test.ts',
    env: { ROCE_PROGRAM_USERLAND: 'trixie' },
  },
  {
    name: 'sim-random',
    minutes: 240,
    command: 'npx vitest run test/sim-random',
    env: { ROCE_SIM_SEEDS: 2000, ROCE_SIM_COUNT: 1000 },
  },
  {
    name: 'sim-mixed',
    minutes: 120,
    command: 'npx vitest run test/sim-mixed',
    env: { ROCE_SIM_SEEDS: 2000 },
    required: 'FLUSH, ATOMIC_WRITE and services mixed: nothing lost or twice',
  },
  {
    name: 'recovery',
    minutes: 60,
    command: 'npx vitest run test/sim-recovery',
    env: { ROCE_SIM_SEEDS: 2000 }, // Against the model and against each other: 4,000 runs.
    required: 'recovery from losses: nothing lost, twice or stuck',
  },
  {
    name: 'sim-xrc',
    minutes: 60,
    command: 'npx vitest run test/sim-xrc',
    env: { ROCE_SIM_SEEDS: 500 }, // The model, the engine, and both: 1,500 runs.
    required: 'XRC: nothing lost or twice',
  },
  {
    name: 'sim-migration',
    minutes: 30,
    command: 'npx vitest run test/sim-migration',
    env: { ROCE_SIM_SEEDS: 4, ROCE_SIM_MIGRATIONS: 100 }, // 24 runs of 64 MiB.
    required: 'path migration: paths that migrate lose nothing',
  },
  {
    name: 'sim-differential',
    minutes: 60,
    command: 'npx vitest run test/sim-differential test/sim-hostile',
    env: { ROCE_SIM_SEEDS: 6000 },
  },
  {
    name: 'sim-life',
    minutes: 180,
    command: 'npx vitest run test/sim-life test/sim-duplicates',
    env: { ROCE_SIM_SEEDS: 290, ROCE_SIM_MODELS: 30 }, // Of each of seven workloads: 2,030 in all.
    required: 'the engine: nothing lost, twice or stuck',
  },
  {
    name: 'sim-busy',
    minutes: 60,
    command: 'npx vitest run test/sim-busy test/sim-polling',
    env: { ROCE_SIM_SEEDS: 200, ROCE_SIM_BUSY: 2 * 1024 * 1024 },
  },
  {
    name: 'sim-flood',
    minutes: 40,
    command: 'npx vitest run test/sim-flood',
    env: { ROCE_SIM_MESSAGES: 100_000_000 },
  },
  {
    name: 'hostile',
    minutes: 90,
    command: 'npx vitest run test/hostile',
    env: { ROCE_HOSTILE_PACKETS: 1_000_000, ROCE_HOSTILE_CAPTURES: 1000 },
  },
  {
    name: 'decoders',
    minutes: 40,
    command: 'npx vitest run test/hostile-decoders',
    env: { ROCE_HOSTILE_DECODERS: 1_000_000 },
    required: 'captures: a million mutated packets of each decoder, and nothing throws',
  },
  {
    name: 'connection manager',
    minutes: 30,
    required: 'the connection manager: large counts, nothing kept',
    command: 'npx vitest run packages/cm packages/rdmacm test/cm-hostile --testTimeout 1200000',
    env: {
      ROCE_CM_SEEDS: 2000,
      ROCE_CM_HOSTILE: 1_000_000,
      ROCE_HOSTILE_MADS: 1_000_000,
      ROCE_CM_CONNECTIONS: 100_000,
      ROCE_CM_CYCLES: 100_000,
      ROCE_CM_LOSSY: 200,
    },
  },
  {
    name: 'perf',
    minutes: 300,
    command: 'npx vitest run packages/perf test/perf-hostile test/perf-versions --testTimeout 1200000',
    env: { ROCE_PERF_DIALOGUES: 1_000_000, ROCE_PERF_WHOLE: 1 },
  },
  {
    name: 'sim-cm',
    minutes: 10,
    command: 'npx vitest run test/sim-cm',
    env: { ROCE_SIM_SEEDS: 500 },
    required: 'the connection manager: every state ends',
  },
  {
    name: 'capture-sim',
    minutes: 120,
    command: 'npx vitest run test/capture-sim.test.ts',
    env: { ROCE_CAPTURE_SEEDS: 1500 },
    required: 'captures: no cause at grade certain is wrong',
  },
  {
    name: 'capture speed',
    minutes: 30,
    command:
      'npx vitest run test/capture-memory && node bench/capture/speed.mjs --bytes 1073741824 --rounds 3 --limits',
    required: 'captures: ten times as fast as tshark, in little memory',
  },
  {
    name: 'busy loopback',
    minutes: 10,
    command: 'npx vitest run test/busy-loopback.test.ts',
    env: { ROCE_BUSY_BYTES: 1 << 20 },
  },
  {
    name: 'mutants by hand',
    minutes: 40,
    command: 'node test/mutation/by-hand.mjs',
  },
  {
    name: 'mutation',
    minutes: 360,
    command: 'node test/mutation/judge.mjs && node test/mutation/score.mjs',
  },
  {
    name: 'shaped links',
    minutes: 50,
    command: 'npx vitest run test/shaped-link.test.ts',
    env: { ROCE_SHAPED_SECONDS: 600, ROCE_ROOT_TESTS: 1 },
  },
  {
    name: 'placement',
    minutes: 20,
    command: 'npx vitest run packages/transport/src/placement.test.ts',
    env: { ROCE_PLACEMENTS: 100_000 },
    required: 'FLUSH and ATOMIC_WRITE under loss',
  },
  {
    name: 'raw packets',
    minutes: 20,
    command: 'npx vitest run test/raw-packet.test.ts',
    env: { ROCE_RAW_FRAMES: 1_000_000, ROCE_ROOT_TESTS: 1 },
    required: 'raw packets: every frame arrives as it was sent',
  },
  {
    name: 'sanitizers',
    minutes: 30,
    command: 'node scripts/test-sanitized.mjs',
    env: { ROCE_ROOT_TESTS: 1 },
    required: 'native tests under sanitizers',
  },
  {
    name: 'shared address',
    minutes: 15,
    command: 'npm run test:interop -- sharing', // On a quiet machine: rounds of connections are timed.
    env: { ROCE_GUEST_MTU: 9000, ROCE_SHARING_KILLS: 60, ROCE_SHARING_STALL: 1 },
    required: 'a shared address: killed programs do not disturb the others',
  },
  {
    name: 'interop debian12',
    minutes: 120,
    command: 'npm run test:interop',
    env: { ROCE_CM_IN_A_ROW: 1000, ROCE_CM_AT_ONCE: 200, ROCE_PERF_MATRIX: 'all' },
  },
  {
    name: 'interop debian13',
    minutes: 120,
    command: 'npm run test:interop -- --guest debian13',
    env: { ROCE_CM_IN_A_ROW: 1000, ROCE_CM_AT_ONCE: 200, ROCE_PERF_MATRIX: 'all' },
  },
  {
    name: 'interop xdp',
    minutes: 40,
    command: 'npm run test:interop -- data.test errors.test pingpong.test faults.test',
    env: { ROCE_INTEROP_LINK: 'xdp', ROCE_GUEST_MTU: 9000 },
  },
  {
    name: 'xdp',
    minutes: 30,
    command: 'npx vitest run test/xdp',
    env: { ROCE_XDP_REQUESTS: 9000, ROCE_XDP_FRAMES: 200_000, ROCE_ROOT_TESTS: 1 },
  },
];
