/** `roce dump`: the RoCE packets of a capture. */
import { CaptureError } from '@node-roce/pcap';
import { type CaptureReader, openCapture } from '@node-roce/pcap/node';
import { parseFrame } from '@node-roce/wire';
import { type Entry, toFields, toJson, toLine } from '../dump/format.ts';
import { opcodeName } from '../dump/opcode-name.ts';
import { SuperPacketSplitter } from '../dump/super-packet.ts';
import { STDIN } from '../options.ts';
import type { Terminal } from '../terminal.ts';

interface Options {
  fields: boolean;
  json: boolean;
  qp?: number;
  opcode?: string;
  count?: number;
}

/** A frame that is no packet, and why. */
interface Refused {
  number: number;
  /** Undefined where it is simply not RoCE. */
  damage: string | undefined;
}

export async function run([file]: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  await using capture = openCapture(file === STDIN ? terminal.stdin : file!);
  const name = file === STDIN ? 'standard input' : file;
  let others = 0;
  let shown = 0;
  try {
    for await (const entry of entries(capture)) {
      terminal.signal.throwIfAborted();
      if ('damage' in entry) {
        if (entry.damage === undefined) others++;
        else terminal.message(`${name}: frame ${entry.number} is not shown: ${entry.damage}`);
      } else if (isWanted(entry, options)) {
        print(entry, options, terminal);
        if (++shown === options.count) break;
      }
    }
  } catch (error) {
    if (!(error instanceof CaptureError)) throw error;
    terminal.message(`${terminal.errColors.red('roce:')} ${name}: ${error.message}`);
    return 1;
  } finally {
    if (others > 0)
      terminal.message(`${others} frame${others === 1 ? ' is' : 's are'} not RoCE and not shown`);
  }
  return 0;
}

function print(entry: Entry, { json, fields }: Options, terminal: Terminal): void {
  if (json) terminal.json(toJson(entry));
  else terminal.line(fields ? toFields(entry, terminal) : toLine(entry, terminal));
}

/** Both ways of Wireshark to name an opcode are understood: of its Info column, and of its list. */
function isWanted({ packet: { bth, info } }: Entry, { qp, opcode }: Options): boolean {
  if (qp !== undefined && bth.destQp !== qp) return false;
  if (opcode === undefined) return true;
  const wanted = opcode.toLowerCase();
  return [info.name, opcodeName(info)].some((name) => name.toLowerCase().includes(wanted));
}

/** The packets of a capture in order, super-packets split. */
async function* entries(capture: CaptureReader): AsyncGenerator<Entry | Refused> {
  const splitter = new SuperPacketSplitter();
  let number = 0;
  let start: bigint | undefined;
  for await (const batch of capture) {
    for (const record of batch) {
      number++;
      const time = record.hasTimestamp ? record.timestamp : undefined;
      start ??= time;
      const relativeTime = time === undefined ? undefined : time - start!;
      const frame = record.data;
      const parsed = parseFrame(frame, record.linkType);
      if (!parsed.ok) {
        const { reason, detail, offset } = parsed;
        const damage = reason === 'not-roce' ? undefined : `${reason}, ${detail} (byte ${offset})`;
        yield { number, damage };
        continue;
      }
      const pieces = splitter.split(frame, parsed.packet);
      if (pieces === undefined) {
        yield { packet: parsed.packet, number, segment: undefined, time, relativeTime };
        continue;
      }
      for (const [segment, piece] of pieces.entries()) {
        const part = parseFrame(piece, record.linkType);
        // The last piece of a frame that the capture cut may lack some of its headers.
        if (part.ok) yield { packet: part.packet, number, segment, time, relativeTime };
      }
    }
  }
}
