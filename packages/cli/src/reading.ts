/** What commands that read a capture have in common: the argument, its name in messages, progress. */
import { realpathSync } from 'node:fs';
import type { Crc32, ReadOptions, ReadProgress } from '@node-roce/capture';
import type { CaptureSource } from '@node-roce/pcap/node';
import { STDIN } from './options.ts';
import type { Terminal } from './terminal.ts';

/** A file argument as a source: a path, or standard input for `-`. */
export const sourceOf = (file: string, terminal: Terminal): CaptureSource =>
  file === STDIN ? terminal.stdin : file;

/** Whether a command would write over what it reads. */
export function isSameFile(a: string, b: string): boolean {
  if (a === STDIN || b === STDIN) return false;
  try {
    return realpathSync(a) === realpathSync(b);
  } catch {
    return false; // One of them is not there.
  }
}

/** How messages call it. */
export const nameOfSource = (file: string): string => (file === STDIN ? 'standard input' : file);

/** How all commands read: with progress, until Ctrl-C, ICRCs by the quickest CRC that there is. */
export async function readingOptions(terminal: Terminal, icrc: 'check' | 'skip' = 'check') {
  return {
    icrc: icrc === 'check',
    crc32: await nativeCrc32(),
    signal: terminal.signal,
    onProgress: progressOf(terminal),
  } satisfies ReadOptions;
}

/** The addon's; undefined where there is no addon. */
async function nativeCrc32(): Promise<Crc32 | undefined> {
  try {
    return (await import('@node-roce/dgram-native')).crc32;
  } catch {
    return undefined;
  }
}

/** Before so many milliseconds nobody wonders what is taking so long; then ten times a second. */
const PATIENCE = 500;
const INTERVAL = 100;

/** Tells how far a long reading is, where stderr is a terminal. */
function progressOf(terminal: Terminal): (progress: ReadProgress) => void {
  const start = performance.now();
  let next = start + PATIENCE;
  return ({ bytes, total, rocePackets }) => {
    const now = performance.now();
    if (now < next) return;
    next = now + INTERVAL;
    const share =
      total === undefined ? '' : ` of ${mebibytes(total)} (${Math.floor((100 * bytes) / total)} %)`;
    const rate = bytes / 1e3 / (now - start);
    terminal.progress(`${mebibytes(bytes)}${share}, ${rocePackets} RoCE packets, ${rate.toFixed(0)} MB/s`);
  };
}

const mebibytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(0)} MiB`;
