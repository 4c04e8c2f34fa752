/** Folders that a command writes to. */
import { existsSync, mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * As mkdir -p does. Node 20's own loops for ever where a file system takes no folder and calls that ENOENT, as /proc does.
 * @throws the system's error, also where a file has the name
 */
export function makeFolder(folder: string): void {
  const parent = dirname(folder);
  if (!existsSync(parent)) makeFolder(parent);
  // For a file in the way, mkdir has the error.
  if (!existsSync(folder) || !statSync(folder).isDirectory()) mkdirSync(folder);
}
