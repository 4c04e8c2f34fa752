/** Our own commands, as processes of this namespace. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** The program itself. */
export const ROCE = fileURLToPath(new URL('../../../packages/cli/bin/roce.js', import.meta.url));

export interface Ran {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** A command that runs. */
export class RoceCommand implements AsyncDisposable {
  readonly exited: Promise<Ran>;
  readonly #child: ReturnType<typeof spawn>;
  #stdout = '';
  #stderr = '';

  constructor(args: readonly string[]) {
    this.#child = spawn(process.execPath, [ROCE, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child.stdout!.on('data', (data) => {
      this.#stdout += data;
    });
    this.#child.stderr!.on('data', (data) => {
      this.#stderr += data;
    });
    this.exited = new Promise((resolve) => {
      this.#child.on('close', (code) => resolve({ code, stdout: this.#stdout, stderr: this.#stderr }));
    });
  }

  /** Resolves once stderr has the text; rejects if the command ends before. */
  async says(text: string): Promise<void> {
    while (!this.#stderr.includes(text)) {
      const end = this.exited.then((ran) => {
        throw new Error(`ended with ${ran.code}: ${ran.stdout}${ran.stderr}`);
      });
      await Promise.race([end, new Promise((resolve) => setTimeout(resolve, 20))]);
    }
  }

  interrupt(): void {
    this.#child.kill('SIGINT');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.exited;
  }
}
