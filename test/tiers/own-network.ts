/**
 * A network namespace for each worker of Vitest, and so for each test file: its ports, addresses and interfaces are its own.
 * Root's worker stays root. An ordinary user's worker makes the namespace in a user namespace and drops the capabilities there,
 * so that the tests see an ordinary user.
 */
import { fork, spawnSync } from 'node:child_process';
import { readlinkSync } from 'node:fs';
import { ForksPoolWorker, type PoolOptions } from 'vitest/node';

const UP = 'ip link set lo up && exec';
const isRoot = process.getuid?.() === 0;
/** A command that runs the command after it. */
const [PROGRAM, ...BEFORE] = isRoot
  ? ['unshare', '--net', 'sh', '-c', `${UP} "$0" "$@"`]
  : [
      ...['unshare', '--map-current-user', '--net', '--keep-caps', 'sh', '-c'],
      `${UP} setpriv --ambient-caps -all --inh-caps -all "$0" "$@"`,
    ];

class OwnNetworkWorker extends ForksPoolWorker {
  override async start(): Promise<void> {
    // Vitest's own way of starting it, but for the command before.
    const worker = fork(this.entrypoint, [], {
      env: { ...this.env, ROCE_OUTER_NETWORK: readlinkSync('/proc/self/ns/net') },
      execPath: PROGRAM,
      execArgv: [...BEFORE, process.execPath, ...this.execArgv],
      stdio: 'pipe',
      serialization: 'advanced',
    });
    Object.assign(this, { _fork: worker });
    await super.start();
  }
}

const POOL = {
  name: 'own-network',
  createPoolWorker: (options: PoolOptions) => new OwnNetworkWorker(options),
};

/** Vitest's `pool`. Where the machine refuses namespaces, the test files share its network. */
export function ownNetwork(): typeof POOL | 'forks' {
  const { status, stderr, error } = spawnSync(PROGRAM, [...BEFORE, 'true'], { encoding: 'utf8' });
  if (status === 0) return POOL;
  console.warn(`The tests share the network of this machine: ${error?.message ?? stderr.trim()}`);
  return 'forks';
}
