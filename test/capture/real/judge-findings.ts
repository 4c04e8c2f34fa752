/**
 * Judges findings by the capture itself and the link's log, read by the recorder's own reader: stalls, reordering, ghost ACKs,
 * pause frames, and exchanges of the connection manager. Each check returns what is false, or undefined.
 */
import type { Analysis } from '@node-roce/capture';
// @ts-expect-error: plain JavaScript
import { isResponse, Op, parseRoce, psnDiff } from './pcap.mjs';
import type { Tap, Truth } from './truth-file.ts';

interface Packet {
  op: number;
  service: number;
  qp: number;
  psn: number;
  syndrome?: number;
  attribute?: number;
}

/** A frame of the capture: its headers, and the side that sent it. */
interface SeenFrame {
  number: number;
  ns: bigint;
  bytes: Buffer;
}

/** One frame in the log of the link. */
interface Logged {
  from: Tap;
  lost: string | null;
  in: { frame: number }[];
  out: { frame: number; how: string }[];
}

/** The frames of one capture, and the link's log of the run. */
export interface Evidence {
  frames: readonly SeenFrame[];
  log: readonly Logged[];
}

type Findings = Analysis['findings'];
type Check = (finding: Findings[number], truth: Truth, tap: Tap, evidence: Evidence) => string | undefined;

const MILLISECOND = 1e6;

const other = (tap: Tap): Tap => (tap === 'a' ? 'b' : 'a');

/** The log's entry of each frame at this tap, by number; and the side that sent it. */
function origins(tap: Tap, { log }: Evidence): Map<number, Logged> {
  const found = new Map<number, Logged>();
  for (const entry of log)
    for (const { frame } of entry.from === tap ? entry.in : entry.out) found.set(frame, entry);
  return found;
}

/** Frames at this tap that packets sent after them have overtaken, of those from the other side. */
function overtaken(tap: Tap, evidence: Evidence): Set<number> {
  const late = new Set<number>();
  let newest = -1;
  const sent = new Map(evidence.log.map((entry, i) => [entry, entry.in[0]?.frame ?? i]));
  const seen = origins(tap, evidence);
  for (const { number } of evidence.frames) {
    const entry = seen.get(number);
    if (entry === undefined || entry.from === tap) continue;
    const order = sent.get(entry)!;
    if (order < newest) late.add(number);
    else newest = order;
  }
  return late;
}

const reordering: Check = ({ frameCount, frames, text }, _truth, tap, evidence) => {
  const late = overtaken(tap, evidence);
  if (frameCount > late.size) return `${late.size} frames overtaken; the finding: ${text}`;
  const wrong = frames.filter((frame) => !late.has(frame));
  return wrong.length === 0
    ? undefined
    : `frames ${wrong.join(', ')} were not overtaken; the finding: ${text}`;
};

/** ACKs of PSNs that their stream had acknowledged before, without the network's copies. */
const ghostAcks: Check = ({ frameCount, text }, truth, tap, { frames }) => {
  const copies = new Set(truth.duplicated.flatMap((packet) => packet[tap].slice(1)));
  const damaged = new Set(truth.damaged.filter(({ from }) => from !== tap).flatMap((packet) => packet[tap]));
  const acknowledged = new Map<string, number>();
  let count = 0;
  for (const { number, bytes } of frames) {
    const packet: Packet | undefined = parseRoce(bytes);
    if (packet === undefined || packet.service !== 0 || packet.qp === 1 || !isResponse(packet.op)) continue;
    if (copies.has(number) || damaged.has(number)) continue;
    const stream = `${bytes.toString('hex', 6, 12)} ${packet.qp}`;
    const before = acknowledged.get(stream);
    const isAck = packet.op === Op.ACK && (packet.syndrome ?? 0) < 0x20;
    const isNak = packet.op === Op.ACK && !isAck;
    if (before !== undefined && isAck && psnDiff(packet.psn, before) <= 0) count++;
    const upTo = isNak ? packet.psn - 1 : packet.psn;
    if (before === undefined || psnDiff(upTo, before) > 0) acknowledged.set(stream, upTo);
  }
  return frameCount <= count ? undefined : `${count} ghost ACKs; the finding: ${text}`;
};

/** Requests after a silence like the ACK timeout: retransmissions, whose first copies this tap has not seen. */
const idleLikeTimeout: Check = ({ frames, text }, truth, tap) => {
  const again = new Set(truth.events.flatMap((event) => event.frames.flatMap((packet) => packet[tap])));
  const wrong = frames.filter((frame) => !again.has(frame));
  return wrong.length === 0
    ? undefined
    : `frames ${wrong.join(', ')} are first transmissions; the finding: ${text}`;
};

const pause: Check = ({ frameCount, text }, truth, tap) => {
  const frames = truth.pfc.flatMap((packet) => packet[tap]).length;
  return frameCount === frames ? undefined : `${frames} pause frames; the finding: ${text}`;
};

/** Messages of the connection manager at this tap: how often each transaction sent each attribute. */
function transactions({ frames }: Evidence): number[] {
  const counts = new Map<string, number>();
  for (const { bytes } of frames) {
    const packet: Packet | undefined = parseRoce(bytes);
    if (packet?.attribute === undefined) continue;
    const udp = bytes.readUInt16BE(12) === 0x0800 ? 14 + (bytes[14] & 15) * 4 : 54;
    const mad = udp + 8 + 12 + 8;
    const key = `${bytes.toString('hex', 6, 12)} ${packet.attribute} ${bytes.toString('hex', mad + 8, mad + 16)}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts.values()];
}

const cmRetries: Check = ({ text }, _truth, _tap, evidence) => {
  const counts = transactions(evidence);
  const said = [...text.matchAll(/was sent (\d+) times/g)].map(([, count]) => Number(count));
  const wrong = said.filter((count) => !counts.includes(count));
  return wrong.length === 0
    ? undefined
    : `messages were sent ${counts.join(', ')} times; the finding: ${text}`;
};

const cmLoss: Check = ({ text }, truth, tap) => {
  // Lost before this tap: those of the other side that have no frame here.
  const missing = truth.lost.filter(
    (packet) => packet.from === other(tap) && packet[tap].length === 0 && packet[packet.from].length > 0,
  ).length;
  const said = Number(/: (\d+) management/.exec(text)?.[1]);
  return said <= missing ? undefined : `${missing} frames were lost before this tap; the finding: ${text}`;
};

const cmUnanswered: Check = ({ frames, text }, truth, tap) => {
  const answers = truth.cm.filter(({ attribute, [tap]: here }) => attribute !== 0x10 && here.length > 0);
  const last = Math.max(...frames);
  const after = answers.filter((packet) => packet[tap].some((frame) => frame > last));
  return after.length === 0 ? undefined : `answered in frame ${after[0][tap]}; the finding: ${text}`;
};

const cmRejected: Check = ({ text }, truth, tap) =>
  truth.cm.some(({ attribute, [tap]: here }) => attribute === 0x12 && here.length > 0)
    ? undefined
    : `no REJ; the finding: ${text}`;

/** By the kind of a finding. */
export const FINDING_CHECKS: Readonly<Record<string, Check>> = {
  reordering,
  'ghost-acks': ghostAcks,
  'idle-like-timeout': idleLikeTimeout,
  pause,
  'cm-retries': cmRetries,
  'cm-loss': cmLoss,
  'cm-unanswered': cmUnanswered,
  'cm-rejected': cmRejected,
};

/** Returns the errors in the stalls of all connections: their times, what came between, and what ended them. */
export function judgeStalls({ connections }: Analysis, truth: Truth, tap: Tap, evidence: Evidence): string[] {
  const { frames } = evidence;
  const copies = new Set(truth.duplicated.flatMap((packet) => packet[tap].slice(1)));
  const damaged = new Set(truth.damaged.filter(({ from }) => from !== tap).flatMap((packet) => packet[tap]));
  const found: string[] = [];
  for (const { id, a, b, stalls } of connections) {
    const qpns = [a.qpn, b.qpn];
    const packets = frames
      .map(({ number, bytes }) => ({
        number,
        mac: bytes.toString('hex', 6, 12),
        packet: parseRoce(bytes) as Packet,
      }))
      .filter(({ packet }) => packet !== undefined && packet.service === 0 && qpns.includes(packet.qp));
    for (const { start: _, duration, after, frame, end } of stalls) {
      const said = `#${id}: stall of ${(duration / MILLISECOND).toFixed(3)} ms, frames ${after} → ${frame}, ended by ${end}`;
      const truly = Number(frames[frame - 1].ns - frames[after - 1].ns);
      if (Math.abs(truly - duration) > 1000) found.push(`${said}; truth: ${truly} ns`);
      const ended = packets.find(({ number }) => number === frame);
      if (ended === undefined) {
        found.push(`${said}; truth: frame ${frame} is of another connection`);
        continue;
      }
      // Of one requester: its requests, and the answers to it.
      const isRequest = !isResponse(ended.packet.op);
      const between = packets.filter(
        ({ number, mac, packet }) =>
          number > after &&
          number < frame &&
          !copies.has(number) &&
          !damaged.has(number) &&
          (isResponse(packet.op) !== isRequest) === (mac === ended.mac),
      );
      if (between.length > 0) found.push(`${said}; truth: frame ${between[0].number} lies between`);
      const event = truth.events.find((one) => one.frames.some((packet) => packet[tap][0] === frame));
      if (end === 'answer' && isRequest) found.push(`${said}; truth: a request`);
      if (end === 'request' && !isRequest) found.push(`${said}; truth: no request`);
      if (end !== 'answer' && end !== 'request' && end !== 'unknown') {
        if (event === undefined) found.push(`${said}; truth: no retransmission`);
        // A cause at grade likely may be wrong; the shares count those.
      }
    }
  }
  return found;
}
