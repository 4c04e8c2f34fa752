/** Shared by `roce report` and `roce ladder`: one text written to a file or to standard output. */
import { writeFile } from 'node:fs/promises';
import { DASH, UsageError } from './options.ts';
import { isSameFile } from './reading.ts';
import type { Terminal } from './terminal.ts';

/** Checks, before anything is read, that the result can be written. */
export function checkOutput(file: string, output: string, json: boolean): void {
  if (output === DASH && json) throw new UsageError('-o - writes to standard output, and so does --json');
  if (isSameFile(file, output)) throw new UsageError(`input and output are the same file, ${output}`);
}

/**
 * Writes the text and confirms it on stderr, or with `--json` on stdout.
 * @param facts what `--json` prints; `summary` is its text form
 */
export async function writeOutput(
  text: string,
  { output, json }: { output: string; json: boolean },
  { facts, summary }: { facts: Record<string, unknown>; summary: string },
  terminal: Terminal,
): Promise<void> {
  if (output === DASH) {
    terminal.line(text.trimEnd());
    return;
  }
  await writeFile(output, text);
  const bytes = Buffer.byteLength(text);
  if (json) terminal.json({ output, bytes, ...facts });
  else terminal.message(`${output}: ${summary}, ${(bytes / 1e6).toFixed(2)} MB`);
}
