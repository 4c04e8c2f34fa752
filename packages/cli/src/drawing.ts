/** What `roce report` and `roce ladder` have in common: one text as a file, or on standard output. */
import { writeFile } from 'node:fs/promises';
import { STDIN, UsageError } from './options.ts';
import { isSameFile } from './reading.ts';
import type { Terminal } from './terminal.ts';

/** Before anything is read: can the result go where it is wanted? */
export function checkOutput(command: string, file: string, output: string, json: boolean): void {
  const usage = (message: string) => Object.assign(new UsageError(message), { command });
  if (output === STDIN && json) throw usage('-o - has stdout for itself: no --json');
  if (isSameFile(file, output)) throw usage(`${output} would be overwritten by what is made of it`);
}

/**
 * Writes the text, and says so on stderr, or with `--json` on stdout.
 * @param facts about what was written, for `--json`; `said` is the same for people
 */
export async function writeOutput(
  text: string,
  { output, json }: { output: string; json: boolean },
  { facts, said }: { facts: Record<string, unknown>; said: string },
  terminal: Terminal,
): Promise<void> {
  if (output === STDIN) {
    terminal.line(text.trimEnd());
    return;
  }
  await writeFile(output, text);
  const bytes = Buffer.byteLength(text);
  if (json) terminal.json({ output, bytes, ...facts });
  else terminal.message(`${output}: ${said}, ${(bytes / 1e6).toFixed(2)} MB`);
}
