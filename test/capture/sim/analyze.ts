/** A simulated capture through the whole way: encoded, read and analyzed. */
import {
  type Analysis,
  type DirectionCounts,
  FlowAnalyzer,
  type Message,
  PacketReader,
} from '@node-roce/capture';
import { CaptureParser } from '@node-roce/pcap';
import { type TapCaptureOptions, type TappedPacket, tapCapture } from '@node-roce/sim';
import { directionOf } from './truth.ts';

export interface Analyzed {
  analysis: Analysis;
  /** By frame: why it was retransmitted, if it was. */
  causes: (string | undefined)[];
  /** By frame: how sure the cause is, if it was. */
  grades: (string | undefined)[];
  /** By frame: whether the requester went back with it. */
  begins: boolean[];
  /** By frame: whether it is the repetition of a frame. */
  repeated: boolean[];
  messages: Message[];
  /** Both directions of all connections, as `directionOf` names them; those whose QPN is known. */
  directions: { direction: string; counts: DirectionCounts }[];
}

export function analyze(packets: readonly TappedPacket[], options: TapCaptureOptions = {}): Analyzed {
  const causes: (string | undefined)[] = new Array(packets.length);
  const grades: (string | undefined)[] = new Array(packets.length);
  const begins: boolean[] = new Array(packets.length).fill(false);
  const repeated: boolean[] = new Array(packets.length).fill(false);
  const messages: Message[] = [];
  const analyzer = new FlowAnalyzer({
    onMessage: (message) => messages.push({ ...message }),
    onPacket: ({ frame }, verdict) => {
      causes[frame - 1] = verdict.retransmission;
      begins[frame - 1] = verdict.begins;
      grades[frame - 1] = verdict.grade;
      repeated[frame - 1] = verdict.repeatedFrame;
    },
  });
  const reader = new PacketReader({ onPacket: (packet) => analyzer.add(packet) });
  const parser = new CaptureParser();
  parser.push(tapCapture(packets, options));
  for (const record of parser) reader.frame(record);
  const analysis = analyzer.finish(reader.summary(), reader.addresses);
  const directions = analysis.connections.flatMap(({ a, b, aToB, bToA }) => [
    { direction: directionOf(a.address, b.address, b.qpn), counts: aToB },
    { direction: directionOf(b.address, a.address, a.qpn), counts: bToA },
  ]);
  return { analysis, causes, grades, begins, repeated, messages, directions };
}
