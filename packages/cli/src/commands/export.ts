/** `roce export`: a part of a capture as a capture; with remarks, or without addresses and payload, if wanted. */
import { realpathSync } from 'node:fs';
import {
  type Analysis,
  Anonymizer,
  analyzeCapture,
  Commentator,
  exportPackets,
  type PacketFilter,
  packetFilter,
  type RocePacket,
} from '@node-roce/capture';
import { PcapngEncoder } from '@node-roce/pcap';
import { CaptureWriter, createCaptureFile } from '@node-roce/pcap/node';
import { STDIN, UsageError } from '../options.ts';
import { nameOfSource, readingOptions, sourceOf } from '../reading.ts';
import type { Terminal } from '../terminal.ts';

interface Options extends Omit<PacketFilter, 'connection'> {
  output: string;
  /** By its number. */
  connection?: number;
  comments: boolean;
  anonymize: boolean;
  key?: string;
  zeroPayload: boolean;
  json: boolean;
}

export async function run([file]: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const { anonymize, key, zeroPayload, comments, connection, json } = options;
  check(file!, options);
  const name = nameOfSource(file!);
  const output = options.output === STDIN ? 'standard output' : options.output;
  const reading = await readingOptions(terminal);
  const analysis = comments || connection !== undefined ? await analyzeCapture(file!, reading) : undefined;
  const filter = { ...options, connection: connectionOf(analysis, connection) };
  const anonymizer = anonymize ? new Anonymizer(key) : undefined;
  const commentator =
    analysis !== undefined && comments ? new Commentator(findingsFor(analysis, anonymizer)) : undefined;

  await using writer = await writerFor(options.output, terminal);
  let isWanted: ((packet: RocePacket) => boolean) | undefined;
  const { packets, summary } = await exportPackets(sourceOf(file!, terminal), writer, {
    anonymizer,
    zeroPayload,
    ...reading,
    isWanted: (packet, { addresses }) => {
      isWanted ??= packetFilter(filter, addresses);
      return isWanted(packet);
    },
    commentsOf: commentator && ((packet) => commentator.commentsOf(packet)),
  });
  await writer.close();
  if (json) terminal.json({ output, packets, of: summary.rocePackets, damage: summary.damage ?? null });
  else terminal.message(`${packets} of ${summary.rocePackets} RoCE packets of ${name} written to ${output}`);
  if (summary.damage === undefined) return 0;
  terminal.message(`${terminal.errColors.red('roce:')} ${name}: ${summary.damage}`);
  return 1;
}

const usage = (message: string) => Object.assign(new UsageError(message), { command: 'export' });

function check(file: string, { output, json, anonymize, key, comments, connection }: Options): void {
  if (key !== undefined && !anonymize) throw usage('--key is for --anonymize');
  if (output === STDIN && json) throw usage('-o - has stdout for itself: no --json');
  if (isSameFile(file, output)) throw usage(`${output} would be overwritten while it is read`);
  if (file === STDIN && (comments || connection !== undefined))
    throw usage('--comments and --connection read the capture twice: they need a file');
}

function isSameFile(a: string, b: string): boolean {
  if (a === STDIN || b === STDIN) return false;
  try {
    return realpathSync(a) === realpathSync(b);
  } catch {
    return false; // One of them is not there.
  }
}

function connectionOf(analysis: Analysis | undefined, id: number | undefined) {
  if (analysis === undefined || id === undefined) return undefined;
  const found = analysis.connections.find((connection) => connection.id === id);
  if (found !== undefined) return found;
  const { length } = analysis.connections;
  throw usage(
    length === 0 ? 'the capture has no connections' : `--connection ${id}: the capture has 1 … ${length}`,
  );
}

/** Sentences name hosts. */
const findingsFor = ({ findings }: Analysis, names: Anonymizer | undefined): Analysis['findings'] =>
  names === undefined
    ? findings
    : findings.map((finding) => ({ ...finding, text: names.sentence(finding.text) }));

const DESCRIPTION = { application: 'node-roce' };

async function writerFor(output: string, terminal: Terminal): Promise<CaptureWriter<PcapngEncoder>> {
  return output === STDIN
    ? new CaptureWriter(terminal.binary(), new PcapngEncoder(DESCRIPTION))
    : await createCaptureFile(output, DESCRIPTION);
}
