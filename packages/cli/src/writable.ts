/** Places that a command is to write to, looked at before it works for minutes. */
import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { makeFolder } from '@node-roce/device/make-folder';
import { UsageError } from './options.ts';

/** Options that name a place. */
interface Places {
  /** A folder. */
  output?: string;
  junit?: string;
  html?: string;
  learn?: string;
}

/** Makes the folder. @throws UsageError where a place cannot be written to */
export function expectWritable({ output, junit, html, learn }: Places): void {
  for (const [name, file] of Object.entries({ junit, html, learn }))
    if (file !== undefined) attempt(name, file, canWriteFile);
  if (output !== undefined) attempt('output', output, makeWritableFolder);
}

function attempt(option: string, path: string, check: (path: string) => void): void {
  try {
    check(path);
  } catch (error) {
    throw new UsageError(`--${option} ${path}: ${(error as Error).message}`);
  }
}

/** A file that exists needs a right of its own; a new one that of its folder. */
function canWriteFile(file: string): void {
  const isThere = existsSync(file);
  if (isThere && statSync(file).isDirectory()) throw new Error('EISDIR: is a directory');
  accessSync(isThere ? file : dirname(file), constants.W_OK);
}

function makeWritableFolder(folder: string): void {
  makeFolder(folder);
  accessSync(folder, constants.W_OK | constants.X_OK);
}
