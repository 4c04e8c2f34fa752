/**
 * The steps of `.ci/run` and `npm run test:long` (docs/testing.md). Add a row to add a step.
 *
 * name     Unique; `.ci/run NAME` and `npm run test:long -- NAME` run the step alone.
 * command  For bash, from the root of the repository. Its output is shown; vitest's counts in it are added up, and its last
 *          line `result: TEXT` goes into the table of results.
 * minutes  The budget on two cores. The step is ended and fails when it is used up.
 * env      Environment variables in addition to those of the run.
 * prepare  Command that fills a cache which the step uses. It starts with the run, at low priority, during the steps before; its failure
 *          is the step's to report.
 * set      Of LONG: `npm run test:long -- SET` runs the steps of the set.
 *
 * A gate step changes no tracked file, and its seeds and cases are fixed: a commit is refused only for what it did. A budget ends
 * a step that hangs. It is several times what the step takes on a quiet machine, because a machine may be slow. CI_MINUTES is the
 * budget of the gate's steps together, below the time at which CI itself would end them.
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

/** Tests with a tag, so many files at a time. Only files that name it: to start one without such a test takes as long as a short test. */
const tagged = (tag, files) =>
  `npx vitest run --tags-filter=${tag} --maxWorkers=${files} $(git grep -l -e "tags: \\[.*'${tag}'" -e "@module-tag ${tag}$" -- '*.test.ts')`;

/** Builds the kernel that runs as a program, and the userland of a guest, unless the user's cache has them. */
const guest = (name) => `node test/interop/run.mjs --prepare --guest ${name}`;

/** Steps of `.ci/run`, in this order. */
export const CI = [
  { name: 'test', minutes: 25, command: 'npm test' },
  { name: 'unused code', minutes: 3, command: 'npm run knip' },
  { name: 'empty root', minutes: 8, command: 'node test/empty-root/run.mjs' },
  { name: 'slow tests', minutes: 15, command: tagged('gate', 2) },
  {
    name: 'seeds',
    minutes: 8,
    command:
      'npx vitest run test/sim/random test/sim/mixed test/sim/nics test/sim/xrc test/sim/recovery && ROCE_SIM_SEEDS=20 npx vitest run test/sim/cm',
    env: { ROCE_SIM_SEEDS: 15 },
  },
  {
    name: 'differential',
    minutes: 5,
    command: 'npx vitest run test/sim/differential test/sim/hostile',
    env: { ROCE_SIM_SEEDS: 150 },
  },
  {
    name: 'sim lives',
    minutes: 8,
    command: 'npx vitest run test/sim/life test/sim/duplicates test/sim/busy test/sim/polling',
    env: { ROCE_SIM_SEEDS: 8, ROCE_SIM_MODELS: 2 }, // Of each of seven workloads.
  },
  {
    name: 'captures',
    minutes: 6,
    command: 'npx vitest run test/capture/sim.test.ts test/capture/sim-counts.test.ts',
    env: { ROCE_CAPTURE_SEEDS: 50, ROCE_CAPTURE_COUNTS: 6 },
  },
  {
    name: 'hostile',
    minutes: 6,
    command:
      "npx vitest run --tags-filter='!slow' test/hostile/packets test/hostile/decoders test/hostile/cm test/links/raw-packet",
    env: {
      ROCE_HOSTILE_PACKETS: 25_000,
      ROCE_HOSTILE_DECODERS: 2000,
      ROCE_HOSTILE_MADS: 10_000,
      ROCE_RAW_FRAMES: 10_000,
    },
  },
  {
    name: 'interop rxe 6.1',
    minutes: 25,
    // Two lanes: one alone leaves the processors idle half of the time.
    command: 'npm run test:interop -- --sample gate --lanes 2',
    prepare: guest('debian12'),
  },
  {
    name: 'interop xdp',
    minutes: 8,
    command:
      'npm run test:interop -- --sample gate --lanes 2 data.test errors.test pingpong.test faults.test',
    env: { ROCE_INTEROP_LINK: 'xdp', ROCE_GUEST_MTU: 9000 },
  },
  {
    name: 'interop debian13',
    minutes: 20,
    command: 'npm run test:interop -- --guest debian13 --sample control',
    env: { ROCE_GUEST_ACCEL: 'tcg' }, // Debian's own kernel, 6.12: what User-Mode Linux's is compared with.
    prepare: guest('debian13'),
  },
];

/** Steps of `npm run test:long`, in this order. */
export const LONG = [
  { name: 'test', set: 'base', minutes: 30, command: 'npm test' },
  { name: 'empty root', set: 'base', minutes: 40, command: 'node test/empty-root/run.mjs test' },
  { name: 'slow tests', set: 'base', minutes: 60, command: tagged('slow', 1) },
  { name: 'killed gates', set: 'base', minutes: 60, command: 'node test/tiers/kill.mjs gate 10' },
  { name: 'killed interop', set: 'base', minutes: 30, command: 'node test/tiers/kill.mjs interop 10' },
  {
    name: 'programs',
    set: 'userland',
    minutes: 60,
    command: 'npx vitest run test/programs/programs.test.ts test/hostile/program.test.ts',
    env: { ROCE_PROGRAM_KILLS: 500, ROCE_HOSTILE_PROGRAM_SECONDS: 600 },
  },
  {
    name: 'perftest programs',
    set: 'userland',
    minutes: 40,
    command: 'npx vitest run test/programs/perftest.test.ts',
    env: { ROCE_PROGRAM_PERFTEST: 'all', ROCE_PROGRAM_BUSY: 20 },
  },
  {
    name: 'programs of Debian 13',
    set: 'userland',
    minutes: 20,
    command: 'npx vitest run test/programs/userland.test.ts',
    env: { ROCE_PROGRAM_USERLAND: 'trixie' },
  },
  {
    name: 'sim-random',
    set: 'simulations',
    minutes: 240,
    command: 'npx vitest run test/sim/random',
    env: { ROCE_SIM_SEEDS: 2000, ROCE_SIM_COUNT: 1000 },
  },
  {
    name: 'sim-mixed',
    set: 'simulations',
    minutes: 120,
    command: 'npx vitest run test/sim/mixed',
    env: { ROCE_SIM_SEEDS: 2000 },
  },
  {
    name: 'recovery',
    set: 'simulations',
    minutes: 60,
    command: 'npx vitest run test/sim/recovery',
    env: { ROCE_SIM_SEEDS: 2000 }, // Against the model and against each other: 4,000 runs.
  },
  {
    name: 'sim-xrc',
    set: 'simulations',
    minutes: 60,
    command: 'npx vitest run test/sim/xrc',
    env: { ROCE_SIM_SEEDS: 500 }, // The model, the engine, and both: 1,500 runs.
  },
  {
    name: 'sim-migration',
    set: 'simulations',
    minutes: 30,
    command: 'npx vitest run test/sim/migration',
    env: { ROCE_SIM_SEEDS: 4, ROCE_SIM_MIGRATIONS: 100 }, // 24 runs of 64 MiB.
  },
  {
    name: 'sim-differential',
    set: 'simulations',
    minutes: 60,
    command: 'npx vitest run test/sim/differential test/sim/hostile',
    env: { ROCE_SIM_SEEDS: 6000 },
  },
  {
    name: 'sim-life',
    set: 'simulations',
    minutes: 180,
    command: 'npx vitest run test/sim/life test/sim/duplicates',
    env: { ROCE_SIM_SEEDS: 290, ROCE_SIM_MODELS: 30 }, // Of each of seven workloads: 2,030 in all.
  },
  {
    name: 'sim-runs',
    set: 'simulations',
    minutes: 180,
    // By default every second seed is played without runs; here each, and in the step's other half each with them.
    command: [
      'npx vitest run test/sim/random test/sim/mixed test/sim/recovery test/sim/differential test/sim/hostile test/sim/life test/sim/xrc',
      'ROCE_SIM_RUNS=on npx vitest run test/sim/random test/sim/mixed test/sim/recovery test/sim/differential test/sim/hostile',
    ].join(' && '),
    env: { ROCE_SIM_SEEDS: 200, ROCE_SIM_COUNT: 300, ROCE_SIM_RUNS: 'off' },
  },
  {
    name: 'sim-busy',
    set: 'simulations',
    minutes: 60,
    command: 'npx vitest run test/sim/busy test/sim/polling',
    env: { ROCE_SIM_SEEDS: 200, ROCE_SIM_BUSY: 2 * 1024 * 1024 },
  },
  {
    name: 'sim-flood',
    set: 'simulations',
    minutes: 40,
    command: 'npx vitest run test/sim/flood',
    env: { ROCE_SIM_MESSAGES: 100_000_000 },
  },
  {
    name: 'hostile',
    set: 'security',
    minutes: 90,
    command: 'npx vitest run test/hostile',
    env: { ROCE_HOSTILE_PACKETS: 1_000_000, ROCE_HOSTILE_CAPTURES: 1000 },
  },
  {
    name: 'hostile-runs',
    set: 'security',
    minutes: 60,
    // The steps before play links with runs of packets; here each packet is sent and received by itself.
    command: [
      'npx vitest run test/hostile/packets test/hostile/insider test/hostile/link test/hostile/redmark test/hostile/program',
      'npx vitest run test/sockets/loopback test/sockets/lossless-loopback test/sockets/services test/sockets/queue-pair-resize',
    ].join(' && '),
    env: { ROCE_LINK_RUNS: 'off', ROCE_SIM_RUNS: 'off', ROCE_HOSTILE_PACKETS: 200_000 },
  },
  {
    name: 'decoders',
    set: 'security',
    minutes: 40,
    command: 'npx vitest run test/hostile/decoders',
    env: { ROCE_HOSTILE_DECODERS: 1_000_000 },
  },
  {
    name: 'streams',
    set: 'security',
    minutes: 90,
    command: 'npx vitest run packages/rsocket packages/rdmacm/src/stream-random --testTimeout 7200000',
    env: { ROCE_RSOCKET_MESSAGES: 1_000_000, ROCE_STREAM_ROUNDS: 10_000, ROCE_HTTP_REQUESTS: 100_000 },
  },
  {
    name: 'connection manager',
    set: 'security',
    minutes: 30,
    command: 'npx vitest run packages/cm packages/rdmacm test/hostile/cm --testTimeout 1200000',
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
    set: 'security',
    minutes: 300,
    command: 'npx vitest run packages/perf test/perf/hostile test/perf/versions --testTimeout 1200000',
    env: { ROCE_PERF_DIALOGUES: 1_000_000, ROCE_PERF_WHOLE: 1 },
  },
  {
    name: 'sim-cm',
    set: 'simulations',
    minutes: 10,
    command: 'npx vitest run test/sim/cm',
    env: { ROCE_SIM_SEEDS: 500 },
  },
  {
    name: 'capture-sim',
    set: 'captures',
    minutes: 120,
    command: 'npx vitest run test/capture/sim.test.ts',
    env: { ROCE_CAPTURE_SEEDS: 1500 },
  },
  {
    name: 'capture altered',
    set: 'captures',
    minutes: 30,
    command: 'npx vitest run test/capture/altered.test.ts',
    env: { ROCE_ALTERED_ROUNDS: 60 },
  },
  {
    name: 'capture speed',
    set: 'captures',
    minutes: 30,
    command:
      'npx vitest run test/capture/memory && node bench/capture/speed.mjs --bytes 1073741824 --rounds 3 --limits',
  },
  {
    name: 'busy loopback',
    set: 'links',
    minutes: 10,
    command: 'npx vitest run test/sockets/busy-loopback.test.ts',
    env: { ROCE_BUSY_BYTES: 1 << 20 },
  },
  {
    name: 'mutants by hand',
    set: 'mutants',
    minutes: 40,
    command: 'node test/mutation/by-hand.mjs',
  },
  {
    name: 'mutation',
    set: 'mutants',
    minutes: 360,
    command: 'node test/mutation/judge.mjs && node test/mutation/score.mjs',
  },
  {
    name: 'shaped links',
    set: 'links',
    minutes: 50,
    command: 'npx vitest run test/links/shaped.test.ts',
    env: { ROCE_SHAPED_SECONDS: 600, ROCE_ROOT_TESTS: 1 },
  },
  {
    name: 'placement',
    set: 'simulations',
    minutes: 20,
    command: 'npx vitest run packages/transport/scenarios/placement.test.ts',
    env: { ROCE_PLACEMENTS: 100_000 },
  },
  {
    name: 'raw packets',
    set: 'links',
    minutes: 20,
    command: 'npx vitest run test/links/raw-packet.test.ts',
    env: { ROCE_RAW_FRAMES: 1_000_000, ROCE_ROOT_TESTS: 1 },
  },
  {
    name: 'sanitizers',
    set: 'security',
    minutes: 30,
    command: 'node scripts/test-sanitized.mjs',
    env: { ROCE_ROOT_TESTS: 1 },
  },
  {
    name: 'shared address',
    set: 'links',
    minutes: 15,
    command: 'npm run test:interop -- sharing', // On a quiet machine: rounds of connections are timed.
    env: { ROCE_GUEST_MTU: 9000, ROCE_SHARING_KILLS: 60, ROCE_SHARING_STALL: 1 },
  },
  {
    name: 'interop rxe 6.1',
    set: 'interop',
    minutes: 120,
    command: 'npm run test:interop',
    env: {
      ROCE_GUEST_ACCEL: 'um',
      ROCE_CM_IN_A_ROW: 1000,
      ROCE_CM_AT_ONCE: 200,
      ROCE_PERF_MATRIX: 'all',
      ROCE_PERF_BUSY: 20,
    },
  },
  {
    name: 'interop debian12',
    set: 'interop',
    minutes: 180,
    command: 'npm run test:interop',
    env: { ROCE_GUEST_ACCEL: 'tcg', ROCE_CM_IN_A_ROW: 1000, ROCE_CM_AT_ONCE: 200, ROCE_PERF_MATRIX: 'all' },
  },
  {
    name: 'interop debian13',
    set: 'interop',
    minutes: 180,
    command: 'npm run test:interop -- --guest debian13',
    env: { ROCE_GUEST_ACCEL: 'tcg', ROCE_CM_IN_A_ROW: 1000, ROCE_CM_AT_ONCE: 200, ROCE_PERF_MATRIX: 'all' },
  },
  {
    name: 'interop xdp',
    set: 'interop',
    minutes: 40,
    command: 'npm run test:interop -- data.test errors.test pingpong.test faults.test',
    env: { ROCE_INTEROP_LINK: 'xdp', ROCE_GUEST_MTU: 9000 },
  },
  {
    name: 'xdp',
    set: 'links',
    minutes: 30,
    command: 'npx vitest run test/links/xdp',
    env: { ROCE_XDP_REQUESTS: 9000, ROCE_XDP_FRAMES: 200_000, ROCE_ROOT_TESTS: 1 },
  },
];

/**
 * The steps of `table` that `names` name, each by its own name or by its set; all steps without names. `unknown`: a name that is
 * neither.
 */
export function choose(table, names) {
  const isNamed = (step, name) => step.name === name || step.set === name;
  const unknown = names.find((name) => !table.some((step) => isNamed(step, name)));
  const chosen = table.filter((step) => names.length === 0 || names.some((name) => isNamed(step, name)));
  return { chosen, unknown };
}
