/** Network namespaces of a test's own, with programs in them; they end with the process that made them. */
import { type ChildProcess, execFileSync, type SpawnOptions } from 'node:child_process';
import { once } from 'node:events';
import { end, spawnTethered } from './process.ts';

/** A network namespace, removed at the end. */
export class Namespace implements AsyncDisposable {
  readonly #holder: ChildProcess;

  private constructor(holder: ChildProcess) {
    this.#holder = holder;
  }

  static async make(): Promise<Namespace> {
    const script = 'ip link set lo up && echo up && exec sleep infinity';
    const holder = spawnTethered('unshare', ['--net', 'sh', '-c', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(holder.stdout!, 'data');
    return new Namespace(holder);
  }

  get pid(): number {
    return this.#holder.pid!;
  }

  /** Runs a command to its end. */
  run(command: string, ...args: string[]): string {
    return execFileSync('nsenter', [...this.#enter(), command, ...args], { encoding: 'utf8', stdio: 'pipe' });
  }

  spawn(command: string, args: readonly string[], options: SpawnOptions = {}): ChildProcess {
    return spawnTethered('nsenter', [...this.#enter(), command, ...args], options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await end(this.#holder);
  }

  // Only the network: the tests do not need its names under /sys.
  #enter(): string[] {
    return ['--target', String(this.pid), '--net'];
  }
}

/** Joins two namespaces by a cable: `name` at both ends, with these addresses. */
export function join(
  a: Namespace,
  b: Namespace,
  name: string,
  addresses: readonly [string, string],
  mtu = 1500,
): void {
  const other = `${name}-peer`;
  a.run('ip', 'link', 'add', name, 'mtu', `${mtu}`, 'type', 'veth', 'peer', 'name', other, 'mtu', `${mtu}`);
  a.run('ip', 'link', 'set', other, 'netns', String(b.pid));
  b.run('ip', 'link', 'set', other, 'name', name);
  for (const [i, side] of [a, b].entries()) {
    side.run('ip', 'addr', 'add', `${addresses[i]}/24`, 'dev', name);
    side.run('ip', 'link', 'set', name, 'up');
  }
}
