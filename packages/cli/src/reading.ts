/** Shared by the commands that read a capture: the file argument, its name in messages, progress. */
import { fstatSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import {
  type CaptureSummary,
  type Crc32,
  formatCount,
  nothingDecoded,
  type ReadOptions,
  type ReadProgress,
} from '@node-roce/capture';
import type { CaptureSource } from '@node-roce/pcap/node';
import { DASH, UsageError } from './options.ts';
import type { Terminal } from './terminal.ts';

/** A file argument as a source: a path, or standard input for `-`. */
export function sourceOf(file: string, terminal: Terminal): CaptureSource {
  if (file === DASH) return terminal.stdin;
  // Reading a directory fails with an error that does not name it.
  if (statSync(file).isDirectory())
    throw Object.assign(new Error(`${file}: is a directory; expected a capture file`), { code: 'EISDIR' });
  return file;
}

/** Names of files in a directory that are taken for captures. */
const CAPTURE_NAME = /\.(pcap|pcapng|cap|dmp)\d*(\.(gz|zst))?$/i;

/**
 * File arguments as one source: several files are one capture, by the time of their packets, and a directory stands for the captures in
 * it. Standard input is read alone.
 */
export function sourcesOf(files: readonly string[], terminal: Terminal): CaptureSource | readonly string[] {
  const paths = pathsOf(files);
  return paths.length === 1 ? sourceOf(paths[0], terminal) : paths;
}

/** The files that arguments stand for. */
export function pathsOf(files: readonly string[]): string[] {
  if (files.length > 1 && files.includes(DASH))
    throw new UsageError('standard input cannot be merged with other files: give each capture by its name');
  return files.flatMap((file) => (file === DASH ? [file] : capturesAt(file)));
}

function capturesAt(path: string): string[] {
  if (!statSync(path).isDirectory()) return [path];
  const names = readdirSync(path).filter((name) => CAPTURE_NAME.test(name));
  if (names.length === 0)
    throw Object.assign(new Error(`${path}: the directory has no capture files (.pcap, .pcapng, .cap)`), {
      code: 'ENOENT',
    });
  return names.toSorted().map((name) => join(path, name));
}

/** Whether a capture can be read twice; a pipe can not. A missing file is left to the reading, whose error names it. */
export function isFile(file: string): boolean {
  if (file === DASH) return false;
  const stats = statSync(file, { throwIfNoEntry: false });
  return stats === undefined || stats.isFile() || stats.isDirectory();
}

/** Whether a command would overwrite its input: by device and inode, as a file may have several names. */
export function isSameFile(input: string, output: string): boolean {
  if (output === DASH) return false;
  try {
    const [x, y] = [statsOf(input), statsOf(output)];
    return x.dev === y.dev && x.ino === y.ino;
  } catch {
    return false; // One of them does not exist.
  }
}

const statsOf = (path: string) =>
  path === DASH ? fstatSync(0, { bigint: true }) : statSync(path, { bigint: true });

/** The source's name in messages. */
const nameOfSource = (file: string): string => (file === DASH ? 'standard input' : file);

export const nameOfSources = (files: readonly string[]): string =>
  files.length === 1 ? nameOfSource(files[0]) : `${files.length} files`;

/** Options of the command line that every reading takes. */
export interface ReadingChoices {
  icrc?: 'check' | 'skip';
  /** UDP ports of RoCE other than 4791. */
  port?: number[];
}

/**
 * The exit code after a capture was read; explains an early end of the reading, and a capture in which nothing was
 * decoded, unless the findings were printed (`isShown`).
 */
export function exitCode(
  summary: CaptureSummary,
  files: string | readonly string[],
  terminal: Terminal,
  { isShown = false } = {},
): number {
  const { damage, sampledPackets, rocePackets } = summary;
  if (sampledPackets > 0)
    terminal.message(
      `${formatCount(sampledPackets)} of ${formatCount(rocePackets)} packets are samples (sFlow): no connection is made of them, as packets between samples are missing by design`,
    );
  const nothing = damage === undefined ? nothingDecoded(summary) : undefined;
  if (nothing !== undefined && isShown) return 1;
  const said = damage ?? (nothing && `${nothing.text}. ${nothing.hint}`);
  if (said === undefined) return 0;
  terminal.message(
    `${terminal.errColors.red('roce:')} ${nameOfSources(typeof files === 'string' ? [files] : files)}: ${said}`,
  );
  return 1;
}

/** Options of every reading: progress, Ctrl-C, and the fastest CRC available for the ICRCs. */
export async function readingOptions(terminal: Terminal, { icrc, port }: ReadingChoices = {}) {
  return {
    icrc: icrc !== 'skip',
    ports: port,
    crc32: await nativeCrc32(),
    signal: terminal.signal,
    onProgress: progressOf(terminal),
  } satisfies ReadOptions;
}

/** The CRC of the native addon; undefined without the addon. */
async function nativeCrc32(): Promise<Crc32 | undefined> {
  try {
    return (await import('@node-roce/dgram-native')).crc32;
  } catch {
    return undefined;
  }
}

/** Milliseconds before the first line of progress, and between two of them. */
const PROGRESS_DELAY_MS = 500;
const PROGRESS_INTERVAL_MS = 100;

/** Shows the progress of a long reading if stderr is a terminal. */
function progressOf(terminal: Terminal): (progress: ReadProgress) => void {
  const start = performance.now();
  let next = start + PROGRESS_DELAY_MS;
  return ({ bytes, total, rocePackets }) => {
    const now = performance.now();
    if (now < next) return;
    next = now + PROGRESS_INTERVAL_MS;
    const share =
      total === undefined ? '' : ` of ${mebibytes(total)} (${Math.floor((100 * bytes) / total)} %)`;
    const rate = bytes / 1e3 / (now - start);
    terminal.progress(`${mebibytes(bytes)}${share}, ${rocePackets} RoCE packets, ${rate.toFixed(0)} MB/s`);
  };
}

const mebibytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(0)} MiB`;
