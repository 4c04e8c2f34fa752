/** `roce export`: copies a part of a capture, optionally with comments, or without addresses and payload; or writes its tables. */
import { lstat, rm } from 'node:fs/promises';
import { basename, resolve } from 'node:path';
import {
  AddressTable,
  Anonymizer,
  analyzeCapture,
  Commentator,
  counted,
  exportPackets,
  type PacketFilter,
  packetExpression,
  packetFilter,
  type RocePacket,
} from '@node-roce/capture/node';
import { PcapngEncoder } from '@node-roce/pcap';
import { CaptureWriter, createCaptureFile } from '@node-roce/pcap/node';
import { attributeOf, DASH, UsageError } from '../options.ts';
import {
  exitCode,
  isFile,
  isSameFile,
  nameOfSources,
  pathsOf,
  type ReadingChoices,
  readingOptions,
  sourcesOf,
} from '../reading.ts';
import { checkSpan, connectionOf, understood } from '../selection.ts';
import { exportChoices } from '../specs/packet-choices.ts';
import type { Terminal } from '../terminal.ts';

interface Options extends Omit<PacketFilter, 'connection'>, ReadingChoices {
  output?: string;
  /** Folder of the tables. */
  parquet?: string;
  host?: string;
  /** Its number. */
  connection?: number;
  filter?: string;
  comments: boolean;
  anonymize: boolean;
  key?: string;
  zeroPayload: boolean;
  json: boolean;
}

export async function run(files: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  if (options.parquet !== undefined) return await exportTables(files, options.parquet, options, terminal);
  const { anonymize, key, zeroPayload, comments, connection, json, output: path } = options;
  if (path === undefined)
    throw new UsageError('expected -o <file> for a capture, or --parquet <folder> for tables');
  if (options.host !== undefined) throw new UsageError('--host needs --parquet');
  check(files, path, options);
  checkSpan(options);
  const { filter: expression } = options;
  if (expression !== undefined) understood(() => packetExpression(expression, new AddressTable()));
  const name = nameOfSources(files);
  const output = path === DASH ? 'standard output' : path;
  const reading = await readingOptions(terminal, options);
  const analysis =
    comments || connection !== undefined
      ? await analyzeCapture(sourcesOf(files, terminal), reading)
      : undefined;
  const filter = {
    ...options,
    connection: analysis && connection !== undefined ? connectionOf(analysis, connection) : undefined,
  };
  const anonymizer = anonymize ? new Anonymizer(key) : undefined;
  const commentator = analysis !== undefined && comments ? new Commentator(analysis.findings) : undefined;

  const { packets, summary } = await written(path, terminal, async (writer) => {
    let fits: ((packet: RocePacket) => boolean) | undefined;
    let isWanted: ((packet: RocePacket) => boolean) | undefined;
    return await exportPackets(sourcesOf(files, terminal), writer, {
      anonymizer,
      zeroPayload,
      ...reading,
      isWanted: (packet, { addresses }) => {
        isWanted ??= packetFilter(filter, addresses);
        if (expression !== undefined) fits ??= packetExpression(expression, addresses);
        return isWanted(packet) && fits?.(packet) !== false;
      },
      commentsOf: commentator && ((packet) => commentator.commentsOf(packet)),
    });
  });
  if (json) terminal.json({ output, packets, of: summary.rocePackets, damage: summary.damage ?? null });
  else terminal.message(`${packets} of ${summary.rocePackets} RoCE packets of ${name} written to ${output}`);
  return exitCode(summary, files, terminal);
}

/** The name of a capture in tables: of several files, the first one's. */
export function captureName(files: readonly string[]): string {
  const [first] = pathsOf(files);
  return first === DASH ? 'stdin' : basename(resolve(first));
}

async function exportTables(
  files: readonly string[],
  folder: string,
  options: Options,
  terminal: Terminal,
): Promise<number> {
  for (const { flags, notWith } of exportChoices) {
    const value = options[attributeOf(flags) as keyof Options];
    const [flag] = flags.split(/,? /);
    if (notWith === '--parquet' && value !== undefined && value !== false)
      throw new UsageError(
        `--parquet writes the whole analysis, without ${flag}; of a part: roce export … ${flag === '-o' ? '' : `${flag} … `}-o - | roce export - --parquet ${folder}`,
      );
  }
  const capture = captureName(files);
  const { exportParquet } = await import('../parquet/export.ts');
  const source = sourcesOf(files, terminal);
  const reading = await readingOptions(terminal, options);
  const host = options.host ?? 'unknown';
  const {
    summary,
    rows,
    files: written,
  } = await exportParquet(source, { ...reading, folder, host, capture });
  if (options.json)
    terminal.json({ folder, capture, host, files: written, ...rows, damage: summary.damage ?? null });
  else if (written > 0) {
    const { packets, messages, connections, findings } = rows;
    terminal.message(
      `${counted(packets, 'packet')}, ${counted(messages, 'message')}, ${counted(connections, 'connection')} and ${counted(findings, 'finding')} of ${nameOfSources(files)} written to ${folder}, ${counted(written, 'file')}`,
    );
  }
  return exitCode(summary, files, terminal);
}

function check(
  files: readonly string[],
  output: string,
  { json, anonymize, key, comments, connection }: Options,
): void {
  if (key !== undefined && !anonymize) throw new UsageError('--key needs --anonymize');
  if (output === DASH && json) throw new UsageError('-o - writes to standard output, and so does --json');
  if (pathsOf(files).some((file) => isSameFile(file, output)))
    throw new UsageError(`input and output are the same file, ${output}`);
  if ((comments || connection !== undefined) && !files.every(isFile))
    throw new UsageError(
      '--comments and --connection read the capture twice: give the name of a file in place of -',
    );
}

const DESCRIPTION = { application: 'node-roce' };

type Writer = CaptureWriter<PcapngEncoder>;

/** Runs `write` with a writer of the output. If it fails or is interrupted, the partial file is removed. */
async function written<T>(
  output: string,
  terminal: Terminal,
  write: (writer: Writer) => Promise<T>,
): Promise<T> {
  if (output === DASH) {
    await using writer = new CaptureWriter(terminal.binary(), new PcapngEncoder(DESCRIPTION));
    return await closed(writer, write);
  }
  const writer = await createCaptureFile(output, DESCRIPTION);
  try {
    return await closed(writer, write);
  } catch (error) {
    await writer[Symbol.asyncDispose]().catch(() => {});
    await removeFile(output);
    throw error;
  }
}

/** Removes a regular file; a device such as /dev/null stays. */
async function removeFile(path: string): Promise<void> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats?.isFile()) await rm(path);
}

async function closed<T>(writer: Writer, write: (writer: Writer) => Promise<T>): Promise<T> {
  const result = await write(writer);
  await writer.close();
  return result;
}
