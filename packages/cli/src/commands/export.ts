/** `roce export`: copies a part of a capture; optionally with comments, or without addresses and payload. */
import { lstat, rm } from 'node:fs/promises';
import {
  AddressTable,
  Anonymizer,
  analyzeCapture,
  Commentator,
  exportPackets,
  type PacketFilter,
  packetExpression,
  packetFilter,
  type RocePacket,
} from '@node-roce/capture/node';
import { PcapngEncoder } from '@node-roce/pcap';
import { CaptureWriter, createCaptureFile } from '@node-roce/pcap/node';
import { DASH, UsageError } from '../options.ts';
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
import type { Terminal } from '../terminal.ts';

interface Options extends Omit<PacketFilter, 'connection'>, ReadingChoices {
  output: string;
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
  const { anonymize, key, zeroPayload, comments, connection, json } = options;
  check(files, options);
  checkSpan(options);
  const { filter: expression } = options;
  if (expression !== undefined) understood(() => packetExpression(expression, new AddressTable()));
  const name = nameOfSources(files);
  const output = options.output === DASH ? 'standard output' : options.output;
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

  const { packets, summary } = await written(options.output, terminal, async (writer) => {
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

function check(
  files: readonly string[],
  { output, json, anonymize, key, comments, connection }: Options,
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
