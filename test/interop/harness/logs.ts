/** The logs of a failed run, in the folder that run.mjs names, under test/interop/logs. */
import { appendFileSync, cpSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const LOGS = process.env.ROCE_INTEROP_LOGS || fileURLToPath(new URL('../logs/', import.meta.url));

/** Copies a file or directory to the logs, under that name. */
export function keep(source: string, name: string): void {
  mkdirSync(LOGS, { recursive: true });
  cpSync(source, join(LOGS, name.replaceAll(/[^\w.-]+/g, '_')), { recursive: true });
}

const MAX_MESSAGE_BYTES = 400;

/** A guest's record of commands, input and output (`exec.log`), one event a line. */
export class Transcript {
  readonly #file: string;

  constructor(directory: string) {
    this.#file = join(directory, 'exec.log');
  }

  note(id: number, what: string, text: string): void {
    const time = new Date().toISOString().slice(11, 23);
    const clipped =
      text.length > MAX_MESSAGE_BYTES
        ? `${text.slice(0, MAX_MESSAGE_BYTES)}… (${text.length} characters)`
        : text;
    appendFileSync(this.#file, `${time} ${process.pid}.${id} ${what} ${JSON.stringify(clipped)}\n`);
  }
}
