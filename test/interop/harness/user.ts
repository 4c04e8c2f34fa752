/** Programs of an ordinary user: no root, no capabilities. */
import { type ChildProcess, execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmdirSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { spawnTethered } from './process.ts';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const NOBODY = 65_534;
const ORDINARY = [
  [`--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups', '--no-new-privs'],
  ['--inh-caps=-all', '--ambient-caps=-all', '--bounding-set=-all'],
].flat();
const PARTS = ['native', 'node_modules', 'packages', 'test'];

/**
 * The project and Node where anybody can read them: a clone may stand in a directory of root's alone, where
 * an ordinary user cannot go. Bind mounts; they are of this mount namespace (`ip netns exec` makes one).
 */
class View implements Disposable {
  readonly directory = mkdtempSync(join(tmpdir(), 'roce-user-'));
  readonly node = join(this.directory, 'node');
  readonly #mounted: string[] = [];

  constructor() {
    chmodSync(this.directory, 0o755);
    for (const part of PARTS) {
      mkdirSync(join(this.directory, part));
      this.#bind(join(ROOT, part), join(this.directory, part));
    }
    writeFileSync(this.node, '');
    this.#bind(process.execPath, this.node);
  }

  #bind(from: string, to: string): void {
    execFileSync('mount', ['--bind', from, to]);
    this.#mounted.push(to);
  }

  // Nothing here removes recursively: under a mount that is still there stands the project.
  [Symbol.dispose](): void {
    for (const path of this.#mounted) execFileSync('umount', ['--lazy', path]);
    for (const part of PARTS) rmdirSync(join(this.directory, part));
    unlinkSync(this.node);
    rmdirSync(this.directory);
  }
}

/** A Node program of user and group 65534 that takes and gives lines of JSON; bigints go as strings. */
export class UserProgram {
  readonly #view = new View();
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  /** Its exit status. */
  readonly done: Promise<number | null>;

  /** `program`: path from the project's root. */
  constructor(program: string) {
    const { directory, node } = this.#view;
    this.#child = spawnTethered(
      node,
      [join(directory, program)],
      { stdio: ['pipe', 'pipe', 'inherit'], cwd: '/' },
      ORDINARY,
    );
    this.done = new Promise((resolve) => {
      this.#child.on('exit', (code) => {
        this.#view[Symbol.dispose]();
        resolve(code);
      });
    });
    this.#lines = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]();
  }

  /** Its next line of output. */
  async next<T = Record<string, unknown>>(): Promise<T> {
    const { value, done } = await this.#lines.next();
    if (done) throw new Error(`the program ended with ${await this.done}`);
    return JSON.parse(value) as T;
  }

  send(value: unknown): void {
    const text = JSON.stringify(value, (_key, v) => (typeof v === 'bigint' ? `${v}` : v));
    this.#child.stdin?.write(`${text}\n`);
  }
}
