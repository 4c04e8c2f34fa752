/**
 * A world of its own for each worker of Vitest, and so for each test file: network, processes, mounts and a temporary folder.
 * Ports, addresses, interfaces and names of network namespaces meet nobody's, and all of them end with the worker.
 *
 * Root's worker stays root. An ordinary user's worker makes its namespaces in a user namespace and drops the capabilities there,
 * so that the tests see an ordinary user. Where the machine refuses namespaces, or with ROCE_TEST_NAMESPACES=off, the workers share
 * the machine as other programs do.
 */
import { type ChildProcess, fork, spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ForksPoolWorker, type PoolOptions } from 'vitest/node';
// @ts-expect-error: plain JavaScript
import { sweep } from './sweep.mjs';

const isRoot = process.getuid?.() === 0;

// The shell stays: as the namespace's first process it waits for orphans. /sys shows interfaces of the network that mounted it.
const INSIDE = [
  ...(isRoot ? ['mkdir -p /run/netns', 'mount -t tmpfs none /run/netns'] : []),
  'mount -t sysfs none /sys',
  'ip link set lo up',
].join(' && ');
const AS_BEFORE = isRoot ? '' : 'setpriv --ambient-caps -all --inh-caps -all';

/** A command that runs the command after it. When Vitest ends in whatever way, the kernel ends all of the namespace. */
const [PROGRAM, ...BEFORE] = [
  ...['setpriv', '--pdeathsig', 'KILL', 'unshare', ...(isRoot ? [] : ['--map-current-user', '--keep-caps'])],
  ...['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'],
  ...['sh', '-c', `${INSIDE} || exit; ${AS_BEFORE} "$0" "$@"; exit $?`],
];

const PREFIX = 'roce-t-';

const NAME = 'namespaces';

class OwnWorker extends ForksPoolWorker {
  // Vitest gives a worker's next file only to a worker of the pool's name.
  override readonly name = NAME;
  #child: ChildProcess | undefined;
  // Not deeper: paths of sockets have 107 characters at most.
  readonly #folder = mkdtempSync(join(tmpdir(), PREFIX));

  override async start(): Promise<void> {
    if (this.#child) return super.start();
    // Other users' programs have files here, too.
    chmodSync(this.#folder, 0o1777);
    // As Vitest starts it, but for the command before.
    this.#child = fork(this.entrypoint, [], {
      env: { ...this.env, TMPDIR: this.#folder, ROCE_OUTER_NETWORK: readlinkSync('/proc/self/ns/net') },
      execPath: PROGRAM,
      execArgv: [...BEFORE, process.execPath, ...this.execArgv],
      stdio: 'pipe',
      serialization: 'advanced',
    });
    Object.assign(this, { _fork: this.#child });
    await super.start();
  }

  override async stop(): Promise<void> {
    // unshare(1) ignores SIGTERM.
    this.#child?.kill('SIGKILL');
    await super.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

const POOL = {
  name: NAME,
  createPoolWorker: (options: PoolOptions) => new OwnWorker(options),
};

/** Vitest's `pool`. */
export function ownNamespaces(): typeof POOL | 'forks' {
  if (process.env.ROCE_TEST_NAMESPACES === 'off') return 'forks';
  const { status, stderr, error } = spawnSync(PROGRAM, [...BEFORE, 'true'], { encoding: 'utf8' });
  if (status === 0) {
    sweep(PREFIX);
    return POOL;
  }
  console.warn(`The tests share this machine's network and processes: ${error?.message ?? stderr.trim()}`);
  return 'forks';
}
