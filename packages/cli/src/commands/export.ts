/** `roce export`: a part of a capture as a capture, without addresses and payload if wanted. */
import {
  Anonymizer,
  exportPackets,
  type PacketFilter,
  packetFilter,
  type RocePacket,
} from '@node-roce/capture';
import { PcapngEncoder } from '@node-roce/pcap';
import { CaptureWriter, createCaptureFile } from '@node-roce/pcap/node';
import { STDIN, UsageError } from '../options.ts';
import { isSameFile, nameOfSource, progressOf, sourceOf } from '../reading.ts';
import type { Terminal } from '../terminal.ts';

interface Options extends PacketFilter {
  output: string;
  anonymize: boolean;
  key?: string;
  zeroPayload: boolean;
  json: boolean;
}

export async function run([file]: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const { anonymize, key, zeroPayload, json } = options;
  check(file!, options);
  const name = nameOfSource(file!);
  const output = options.output === STDIN ? 'standard output' : options.output;
  await using writer = await writerFor(options.output, terminal);
  let isWanted: ((packet: RocePacket) => boolean) | undefined;
  const { packets, summary } = await exportPackets(sourceOf(file!, terminal), writer, {
    anonymizer: anonymize ? new Anonymizer(key) : undefined,
    zeroPayload,
    isWanted: (packet, { addresses }) => {
      isWanted ??= packetFilter(options, addresses);
      return isWanted(packet);
    },
    onProgress: progressOf(terminal),
    signal: terminal.signal,
  });
  await writer.close();
  if (json) terminal.json({ output, packets, of: summary.rocePackets, damage: summary.damage ?? null });
  else terminal.message(`${packets} of ${summary.rocePackets} RoCE packets of ${name} written to ${output}`);
  if (summary.damage === undefined) return 0;
  terminal.message(`${terminal.errColors.red('roce:')} ${name}: ${summary.damage}`);
  return 1;
}

function check(file: string, { output, json, anonymize, key }: Options): void {
  const usage = (message: string) => Object.assign(new UsageError(message), { command: 'export' });
  if (key !== undefined && !anonymize) throw usage('--key is for --anonymize');
  if (output === STDIN && json) throw usage('-o - has stdout for itself: no --json');
  if (isSameFile(file, output)) throw usage(`${output} would be overwritten while it is read`);
}

const DESCRIPTION = { application: 'node-roce' };

async function writerFor(output: string, terminal: Terminal): Promise<CaptureWriter<PcapngEncoder>> {
  return output === STDIN
    ? new CaptureWriter(terminal.binary(), new PcapngEncoder(DESCRIPTION))
    : await createCaptureFile(output, DESCRIPTION);
}
