/** A stop-watch at the wire: the rates and times of a run by its packets, without the clock of either program. */
import { type Repeat, repeats } from './repeats.ts';
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

/** The times of the requests of one side, in s, and that of the last packet of its run. */
function requestsOf(packets: readonly WirePacket[], verb: WatchedVerb, requester: string) {
  const times: number[] = [];
  const seen = new Set<number>();
  // With -R the dialogue runs over RC as well: an ACK counts whose PSN is that of a WRITE.
  const psns = new Set<number>();
  let last = 0;
  for (const { source, opcode, destQp, psn, time } of packets) {
    const operation = opcode & OPERATION;
    if (source === requester) {
      if (isWrite(operation)) psns.add(psn);
      if (!(STARTS[verb] as readonly number[]).includes(operation)) continue;
      const identity = destQp * 2 ** 24 + psn;
      if (seen.has(identity)) continue;
      seen.add(identity);
      times.push(time);
      last = Math.max(last, time);
    } else if ((ANSWERS[verb] as readonly number[]).includes(operation)) {
      if (verb !== 'write' || psns.has(psn)) last = Math.max(last, time);
    }
  }
  return { times, last };
}

/** Messages a second of one side. */
export function wireRate(packets: readonly WirePacket[], run: WatchedRun, requester: string): number {
  const { verb, messages, duration, margin = 0 } = run;
  const { times, last } = requestsOf(packets, verb, requester);
  if (duration !== undefined) {
    const [from, until] = [times[0] + margin, times[0] + duration - margin];
    return times.filter((time) => time >= from && time < until).length / (until - from);
  }
  if (times.length < messages) throw new Error(`${times.length} of ${messages} messages on the wire`);
  // Those before are of a warm-up, or of smaller sizes.
  return messages / (last - times[times.length - messages]);
}

/** The mean time from one request to the next, in µs, without the two longest, as perftest leaves them out. */
export function wireLatency(packets: readonly WirePacket[], run: WatchedRun, requester: string): number {
  if (run.duration !== undefined) return 1e6 / wireRate(packets, run, requester);
  const times = requestsOf(packets, run.verb, requester).times.slice(-run.messages);
  const gaps = times.slice(1).map((time, i) => (time - times[i]) * 1e6);
  const kept = gaps.sort((a, b) => a - b).slice(0, -2);
  return kept.reduce((sum, gap) => sum + gap, 0) / kept.length;
}

/** PSNs of a queue pair begin anywhere in 2^24: numbers so close belong together. */
const NEAR = 2 ** 20;

/** The peer's repetitions on all connections (repeats.ts), each of them found by the PSNs of requests and of their ACKs. */
export function allRepeats(packets: readonly WirePacket[], us: string): Repeat[] {
  const isOurs = ({ source }: WirePacket) => source === us;
  const queuePairs = new Set(packets.filter((packet) => !isOurs(packet)).map(({ destQp }) => destQp));
  return [...queuePairs].flatMap((qp) => {
    const theirs = packets.filter((packet) => !isOurs(packet) && packet.destQp === qp);
    const first = theirs[0].psn;
    const near = ({ psn }: WirePacket) => ((psn - first) & 0xff_ffff) < NEAR;
    return repeats(
      packets.filter((packet) => (isOurs(packet) ? near(packet) : packet.destQp === qp)),
      us,
    );
  });
}
