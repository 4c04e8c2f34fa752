/** A network namespace with a pair of virtual interfaces in it, `roce0` and the other end of its cable, `far0`. */
import { spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';

const SETTLED_MS = 150;

function run(command: 'ip' | 'tc', ...args: string[]): { ok: boolean; what: string; said: string } {
  const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: 'utf8' });
  return {
    ok: status === 0,
    what: `${command} ${args.join(' ')}: ${error?.message ?? stderr}`,
    said: stdout,
  };
}

/** A network namespace with a device in it, for changes of its interface. */
export class Namespace implements Disposable {
  readonly name: string;

  /** Undefined where there is no root, or no `ip`: then `tell` gets the reason. */
  static make(name: string, tell: (why: string) => void): Namespace | undefined {
    const { ok, what } = run('ip', 'netns', 'add', name);
    if (ok) return new Namespace(name);
    tell(what);
    return undefined;
  }

  private constructor(name: string) {
    this.name = name;
    this.ip('link set lo up');
    this.plug();
  }

  /** Makes the interfaces, without link-local addresses; `roce0` runs, with 10.77.0.1. */
  plug(): void {
    this.ip('link add roce0 type veth peer name far0');
    for (const end of ['roce0', 'far0']) {
      this.ip(`link set ${end} addrgenmode none`);
      this.ip(`link set ${end} up`);
    }
    this.ip('address add 10.77.0.1/24 dev roce0');
  }

  /** ip(8). @returns its output */
  ip(command: string): string {
    return this.#run('ip', command);
  }

  /** tc(8): shapes an interface. */
  tc(command: string): void {
    this.#run('tc', command);
  }

  #run(program: 'ip' | 'tc', command: string): string {
    const { ok, what, said } = run(program, '-netns', this.name, ...command.split(' '));
    if (!ok) throw new Error(what);
    return said;
  }

  /** The same, with time for subscribers. */
  async change(command: string): Promise<void> {
    this.ip(command);
    await sleep(SETTLED_MS);
  }

  [Symbol.dispose](): void {
    run('ip', 'netns', 'delete', this.name);
  }
}
