/** Two captures of one path in, what happened between them out. */
import { EventEmitter, once } from 'node:events';
import type { CaptureSource } from '@node-roce/pcap/node';
import { type ClockEstimate, estimateClock } from '../compare/clock.ts';
import type { Comparison } from '../compare/comparison.ts';
import { identityOf } from '../compare/identity.ts';
import { PacketSamples } from '../compare/samples.ts';
import { type Side, type Sighting, TransitFollower } from '../compare/transit.ts';
import type { RocePacket } from '../read/packet.ts';
import type { ReadOptions, ReadResult } from '../read/read.ts';
import type { PacketReader } from '../read/reader.ts';
import { readPackets } from './read.ts';

const SECOND = 1e9;
/** Sightings of one capture that wait for the other one's reading. */
const MAX_AHEAD = 1 << 15;

export interface CompareOptions extends Omit<ReadOptions, 'onPacket' | 'onRefused' | 'onChunk'> {}

/** The captures have no packet in common. */
export class NothingInCommonError extends Error {
  override name = 'NothingInCommonError';
}

/** First and last time of a capture, in two parts. */
interface Span {
  first: { seconds: number; nanoseconds: number };
  last: { seconds: number; nanoseconds: number };
}

/**
 * Compares captures that were taken at the same time at two places of one path, A and B: estimates the offset of their clocks, then the
 * delay from one to the other, and finds where each packet that only one capture has was lost. Reads each file twice; the memory
 * that it needs does not grow with the file.
 *
 * ```ts
 * const { clock, aToB } = await compareCaptures('sender.pcap', 'receiver.pcap');
 * console.log(clock.offset, aToB.lost, aToB.delay?.p50);
 * ```
 *
 * Rejects with a `NothingInCommonError` where no packet is in both, else as `readPackets` does.
 */
export async function compareCaptures(
  a: string | URL,
  b: string | URL,
  options: CompareOptions = {},
): Promise<Comparison> {
  const inA = await sample(a, options);
  const inB = await sample(b, options);
  const clock = estimateClock(inA.samples, inB.samples);
  if (clock === undefined) throw new NothingInCommonError('no packet is in both captures');
  const correct = { a: (t: Time) => since(clock, t), b: (t: Time) => correctedB(clock, t) };
  const origin = correct.a((inA.span as Span).first);
  const bounds = (side: Side, { first, last }: Span) => [
    correct[side](first) - origin,
    correct[side](last) - origin,
  ];
  const [startA, endA] = bounds('a', inA.span as Span);
  const [startB, endB] = bounds('b', inB.span as Span);
  const follower = new TransitFollower(clock.sides, Math.max(startA, startB), Math.min(endA, endB));
  const merge = new Merge((sighting) => follower.add(sighting));
  const [readA, readB] = await Promise.all(
    (
      [
        ['a', a],
        ['b', b],
      ] as const
    ).map(([tap, source]) => follow(source, tap, (time) => correct[tap](time) - origin, merge, options)),
  );
  const { aToB, bToA } = follower.finish();
  const { offset, drift, uncertainty, samples } = clock;
  return {
    summaryA: readA.summary,
    summaryB: readB.summary,
    clock: { offset, drift, uncertainty, samples },
    aToB,
    bToA,
    outside: follower.outside,
    unplaced: follower.unplaced,
    events: follower.events,
    eventCount: follower.eventCount,
  };
}

interface Time {
  seconds: number;
  nanoseconds: number;
}

/** Nanoseconds since the estimate's start, of a time by clock A. */
const since = (clock: ClockEstimate, { seconds, nanoseconds }: Time): number =>
  (seconds - clock.seconds) * SECOND + (nanoseconds - clock.nanoseconds);

/** The same of a time by clock B. */
function correctedB(clock: ClockEstimate, time: Time): number {
  const late = since(clock, time) - clock.offset;
  return late / (1 + clock.drift / SECOND);
}

/** The first reading: samples for the clocks, and the span. The ICRCs are left for the second. */
async function sample(source: CaptureSource, options: CompareOptions) {
  const samples = new PacketSamples();
  let span: Span | undefined;
  await readPackets(source, {
    ...options,
    icrc: false,
    onPacket: (packet, reader) => {
      const { hasTimestamp, seconds, nanoseconds } = reader.record;
      if (!hasTimestamp) return;
      samples.add(packet, reader);
      span ??= { first: { seconds, nanoseconds }, last: { seconds, nanoseconds } };
      span.last = { seconds, nanoseconds };
    },
  });
  return { samples, span };
}

/** The second reading of one capture: its sightings go to the merge. */
async function follow(
  source: CaptureSource,
  tap: Side,
  timeOf: (time: Time) => number,
  merge: Merge,
  options: CompareOptions,
): Promise<ReadResult> {
  try {
    return await readPackets(source, {
      ...options,
      onPacket: (packet, reader) => {
        if (reader.record.hasTimestamp) merge.add(sightingOf(packet, reader, tap, timeOf(reader.record)));
      },
      onChunk: () => merge.room(tap),
    });
  } finally {
    merge.end(tap);
  }
}

function sightingOf(packet: RocePacket, reader: PacketReader, tap: Side, time: number): Sighting {
  const { frame, icrc, info, destQp, psn } = packet;
  return {
    tap,
    identity: identityOf(packet, reader),
    frame,
    time,
    icrc,
    source: reader.addresses.text(packet.source),
    destination: reader.addresses.text(packet.destination),
    opcode: info.name,
    destQp,
    psn,
  };
}

/** Puts the sightings of two readings into the order of their times. The reading that is ahead waits. */
class Merge {
  readonly #give: (sighting: Sighting) => void;
  readonly #queues: Record<Side, Sighting[]> = { a: [], b: [] };
  readonly #heads = { a: 0, b: 0 };
  readonly #ended = { a: false, b: false };
  readonly #moved = new EventEmitter();

  constructor(give: (sighting: Sighting) => void) {
    this.#give = give;
  }

  add(sighting: Sighting): void {
    this.#queues[sighting.tap].push(sighting);
  }

  /** Resolves when this reading may go on. */
  async room(tap: Side): Promise<void> {
    this.#run();
    while (this.#waiting(tap) > MAX_AHEAD && !this.#ended[tap === 'a' ? 'b' : 'a'])
      await once(this.#moved, 'moved');
  }

  end(tap: Side): void {
    this.#ended[tap] = true;
    this.#run();
  }

  #waiting(tap: Side): number {
    return this.#queues[tap].length - this.#heads[tap];
  }

  #run(): void {
    for (;;) {
      const [ofA, ofB] = [this.#waiting('a'), this.#waiting('b')];
      // Without a packet of the other one, it is not known whether an older one is still to come.
      if ((ofA === 0 && !this.#ended.a) || (ofB === 0 && !this.#ended.b) || ofA + ofB === 0) break;
      const nextA = this.#queues.a[this.#heads.a];
      const nextB = this.#queues.b[this.#heads.b];
      const tap = ofB === 0 || (ofA > 0 && nextA.time <= nextB.time) ? 'a' : 'b';
      this.#give(tap === 'a' ? nextA : nextB);
      this.#heads[tap]++;
    }
    for (const tap of ['a', 'b'] as const) {
      if (this.#heads[tap] === 0) continue;
      this.#queues[tap] = this.#queues[tap].slice(this.#heads[tap]);
      this.#heads[tap] = 0;
    }
    this.#moved.emit('moved');
  }
}
