/** A stop-watch at the wire: the rates and times of a run by its packets, without the clock of either program. */
import { hasStopped, isResponse, type Repeat, repeats } from './repeats.ts';
import type { WirePacket } from './wire.ts';

/** First packets of requests (IBTA vol 1 §9.2.1, table 38), of RC and UC alike. */
const STARTS = {
  write: [0x06, 0x0a, 0x0b],
  read: [0x0c],
  atomic: [0x13, 0x14],
} as const;
/** Packets that complete them: ACK, the last or only packet of READ responses, ATOMIC ACK. */
const ANSWERS = { write: [0x11], read: [0x0f, 0x10], atomic: [0x12] } as const;
/** WRITE FIRST … WRITE ONLY with immediate. */
const isWrite = (operation: number) => operation >= 0x06 && operation <= 0x0b;
const OPERATION = 0x1f;

export type WatchedVerb = keyof typeof STARTS;

/** A run to be measured. */
export interface WatchedRun {
  verb: WatchedVerb;
  /** Bytes of a message. */
  size: number;
  /** Messages of one side; those of a run with a duration are all that there are. */
  messages: number;
  /** Seconds, and of them those at either end that do not count. */
  duration?: number;
  margin?: number;
}

/** The path MTU of the guests with MTU 9000: a READ request takes a PSN for each response. */
const PATH_MTU = 4096;
const BTH_BYTES = 12;
/** BTH and the VA and R_Key of RETH come before DMALen (IBTA vol 1 §9.3.1). */
const DMA_LENGTH = 24;

/** Requests of one queue pair that were not seen before: a repeat begins among PSNs that are taken. */
class FirstSendings {
  readonly #ends = new Map<number, number>();

  /** Whether a request that takes so many PSNs is new. */
  add({ destQp, psn }: WirePacket, psns: number): boolean {
    const end = this.#ends.get(destQp);
    if (end !== undefined && ((psn - end) & 0xff_ffff) >= 0x80_0000) return false;
    this.#ends.set(destQp, (psn + psns) & 0xff_ffff);
    return true;
  }
}

/** The times of the messages of one side, in s, and that of the last packet of its run. */
function messagesOf(packets: readonly WirePacket[], { verb, size }: WatchedRun, requester: string) {
  const times: number[] = [];
  const bytes: number[] = [];
  const first = new FirstSendings();
  // With -R the dialogue runs over RC as well: an ACK counts whose PSN is that of a WRITE.
  const psns = new Set<number>();
  let last = 0;
  for (const packet of packets) {
    const { source, opcode, psn, time, payload } = packet;
    const operation = opcode & OPERATION;
    if (source === requester) {
      if (isWrite(operation)) psns.add(psn);
      if (!(STARTS[verb] as readonly number[]).includes(operation)) continue;
      const length = verb === 'read' ? readUint32(payload, DMA_LENGTH) : size;
      if (!first.add(packet, verb === 'read' ? Math.max(1, Math.ceil(length / PATH_MTU)) : 1)) continue;
      times.push(time);
      bytes.push(length);
      last = Math.max(last, time);
    } else if ((ANSWERS[verb] as readonly number[]).includes(operation)) {
      if (verb !== 'write' || psns.has(psn)) last = Math.max(last, time);
    }
  }
  return { times: verb === 'read' ? starts(times, bytes, size) : times, last };
}

function readUint32(bytes: Uint8Array, at: number): number {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(at);
}

/** Of the READ requests that a message is split into, the first ones, back from the last message: those before are of other sizes. */
function starts(times: readonly number[], bytes: readonly number[], size: number): number[] {
  const found: number[] = [];
  let missing = size;
  for (let i = times.length - 1; i >= 0; i--) {
    missing -= bytes[i];
    if (missing < 0) break;
    if (missing > 0) continue;
    found.push(times[i]);
    missing = size;
  }
  return found.reverse();
}

/** Messages a second of one side. */
export function wireRate(packets: readonly WirePacket[], run: WatchedRun, requester: string): number {
  const { messages, duration, margin = 0 } = run;
  const { times, last } = messagesOf(packets, run, requester);
  if (duration !== undefined) {
    const [from, until] = [times[0] + margin, times[0] + duration - margin];
    return times.filter((time) => time >= from && time < until).length / (until - from);
  }
  if (times.length < messages) throw new Error(`${times.length} of ${messages} messages on the wire`);
  // Those before are of a warm-up, or of smaller sizes.
  return messages / (last - times[times.length - messages]);
}

/** The mean time from one message to the next, in µs, without the two longest, as perftest leaves them out. */
export function wireLatency(packets: readonly WirePacket[], run: WatchedRun, requester: string): number {
  if (run.duration !== undefined) return 1e6 / wireRate(packets, run, requester);
  const times = messagesOf(packets, run, requester).times.slice(-run.messages);
  const gaps = times.slice(1).map((time, i) => (time - times[i]) * 1e6);
  const kept = gaps.sort((a, b) => a - b).slice(0, -2);
  return kept.reduce((sum, gap) => sum + gap, 0) / kept.length;
}

/** PSNs of a queue pair begin anywhere in 2^24: numbers so close belong together. */
const NEAR = 2 ** 20;

/** The peer's requests and our answers to them, of each connection. */
function connections(packets: readonly WirePacket[], us: string): WirePacket[][] {
  const isOurs = ({ source }: WirePacket) => source === us;
  const requests = packets.filter((packet) => !isOurs(packet) && !isResponse(packet));
  const queuePairs = new Set(requests.map(({ destQp }) => destQp));
  return [...queuePairs].map((qp) => {
    const theirs = requests.filter(({ destQp }) => destQp === qp);
    const first = theirs[0].psn;
    const answers = packets.filter(
      (packet) => isOurs(packet) && isResponse(packet) && ((packet.psn - first) & 0xff_ffff) < NEAR,
    );
    return [...theirs, ...answers].sort((a, b) => a.time - b.time);
  });
}

/** First packets of requests of RC: SEND, WRITE, READ, atomics. */
const REQUESTS: readonly number[] = [0x00, 0x04, 0x05, ...STARTS.write, ...STARTS.read, ...STARTS.atomic];
const ACKNOWLEDGE = 0x11;
/** An AETH that is no NAK. */
const isPositive = ({ opcode, payload }: WirePacket) =>
  opcode !== ACKNOWLEDGE || payload[BTH_BYTES] >> 5 === 0;

/**
 * What each connection has of the peer's requests and our answers: evidence of who has to go on where a run hangs. A requester that has
 * everything acknowledged waits for its program.
 */
export const progress = (packets: readonly WirePacket[], us: string): string[] =>
  connections(packets, us).map((connection) => {
    const requests = connection.filter(({ source }) => source !== us);
    const [{ destQp, psn: first }] = requests;
    const numbers = new Set(requests.map(({ psn }) => psn));
    const starts = new Set(
      requests.filter(({ opcode }) => REQUESTS.includes(opcode & OPERATION)).map(({ psn }) => psn),
    );
    const answered = connection.filter((packet) => packet.source === us && isPositive(packet));
    const reached = answered.reduce((most, { psn }) => Math.max(most, ((psn - first) & 0xff_ffff) + 1), 0);
    const acknowledged = [...starts].filter((psn) => ((psn - first) & 0xff_ffff) < reached).length;
    return `to queue pair ${destQp}: ${starts.size} requests begun, ${acknowledged} answered; ${requests.length} packets, ${requests.length - numbers.size} of them twice`;
  });

/** The peer's repetitions on all connections (repeats.ts): each has the PSNs of the peer's requests and of our answers to them. */
export const allRepeats = (packets: readonly WirePacket[], us: string): Repeat[] =>
  connections(packets, us).flatMap((connection) => repeats(connection, us));

/** Whether the peer's requester stopped on one of them (repeats.ts). */
export const anyHasStopped = (packets: readonly WirePacket[], us: string): boolean =>
  connections(packets, us).some((connection) => hasStopped(connection, us));
