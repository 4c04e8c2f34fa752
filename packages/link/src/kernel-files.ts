/** What the kernel says of this machine and process, in files of /proc and /sys. */
import { readFileSync } from 'node:fs';

/** The text of a file, or '' if it cannot be read: it is gone, of another user, or this is not Linux. */
export function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** Which capabilities this process has now: asks by their numbers (capabilities(7)). */
export function capabilities(): (bit: number) => boolean {
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(readText('/proc/self/status'))?.[1] ?? '0'}`);
  return (bit) => ((effective >> BigInt(bit)) & 1n) === 1n;
}
