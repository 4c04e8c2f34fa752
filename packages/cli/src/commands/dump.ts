/** `roce dump`: the RoCE packets of a capture. */
import { CaptureError } from '@node-roce/pcap';
import { type CaptureReader, openCapture } from '@node-roce/pcap/node';
import { type Entry, formatFields, formatLine, toJson } from '../dump/format.ts';
import { locate } from '../dump/locate.ts';
import { opcodeName } from '../dump/opcode-name.ts';
import { type DumpPacket, readPacket } from '../dump/packet.ts';
import { SuperPacketSplitter } from '../dump/super-packet.ts';
import { STDIN } from '../options.ts';
import type { Terminal } from '../terminal.ts';

interface Options {
  fields: boolean;
  json: boolean;
  qp?: number;
  opcode?: string;
  count?: number;
  udpPort: number;
}

export async function run([file]: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  await using capture = openCapture(file === STDIN ? terminal.stdin : file!);
  const others = { count: 0 };
  let shown = 0;
  const print = options.json
    ? (entry: Entry) => terminal.json(toJson(entry))
    : options.fields
      ? (entry: Entry) => terminal.line(formatFields(entry, terminal).join('\n'))
      : (entry: Entry) => terminal.line(formatLine(entry, terminal));
  try {
    for await (const entry of entries(capture, options.udpPort, others, terminal.signal)) {
      if (!isWanted(entry.packet, options)) continue;
      print(entry);
      if (++shown === options.count) break;
    }
  } catch (error) {
    if (!(error instanceof CaptureError)) throw error;
    terminal.message(
      `${terminal.errColors.red('roce:')} ${file === STDIN ? 'standard input' : file}: ${error.message}`,
    );
    return 1;
  } finally {
    if (others.count > 0) {
      terminal.message(`${others.count} frame${others.count === 1 ? ' is' : 's are'} not RoCE and not shown`);
    }
  }
  return 0;
}

function isWanted(packet: DumpPacket, { qp, opcode }: Options): boolean {
  if (qp !== undefined && packet.bth.destQp !== qp) return false;
  return opcode === undefined || opcodeName(packet.bth.opcode).toLowerCase().includes(opcode.toLowerCase());
}

/** The packets of a capture in order, super-packets split. */
async function* entries(
  capture: CaptureReader,
  port: number,
  others: { count: number },
  signal: AbortSignal,
): AsyncGenerator<Entry> {
  const splitter = new SuperPacketSplitter();
  let number = 0;
  let start: bigint | undefined;
  for await (const batch of capture) {
    signal.throwIfAborted();
    for (const record of batch) {
      number++;
      const time = record.hasTimestamp ? record.timestamp : undefined;
      start ??= time;
      const relativeTime = time === undefined ? undefined : time - start!;
      const located = locate(record.data, record.linkType, port);
      if (located === undefined) {
        others.count++;
        continue;
      }
      const frames = splitter.split(record.data, located);
      for (const [i, frame] of frames.entries()) {
        const segment = frames.length === 1 ? undefined : i;
        const at = segment === undefined ? located : locate(frame, record.linkType, port);
        // The last segment of a frame that the capture cut may lack its BTH.
        if (at !== undefined)
          yield { packet: readPacket(frame, at), frame, number, segment, time, relativeTime };
      }
    }
  }
}
