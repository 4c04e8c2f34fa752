/**
 * Everything else that the analysis counts, compared with the packets that passed the tap: messages, NAKs, marks and CNPs, frames that a
 * mirror repeats. And what the capture itself loses is not taken for loss of the network.
 */
import type { Connection, Message } from '@node-roce/capture';
import { type Flow, type TapPlace, type TappedPacket, tap } from '@node-roce/sim';
import {
  AethKind,
  aethKind,
  bthDestQp,
  formatIpAddress,
  gidToIpBytes,
  Opcode,
  psnAdd,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { type Analyzed, analyze } from './sim/analyze.ts';
import { type CaptureRun, runConnections } from './sim/run.ts';
import { directionOf, trueFrames } from './sim/truth.ts';

const RUN: CaptureRun = {
  seed: 1,
  network: 'lossy',
  loss: 0.03,
  ends: ['engine', 'engine'],
  hosts: 3,
  connections: 5,
  count: 40,
};

const SEEDS = Array.from({ length: Number(process.env.ROCE_CAPTURE_COUNTS ?? 1) }, (_, i) => i + 1);

const OPERATIONS: Record<string, string> = {
  ATOMIC_CMP_AND_SWP: 'CMP_SWAP',
  ATOMIC_FETCH_AND_ADD: 'FETCH_ADD',
};

const textOf = (gid: Uint8Array) => formatIpAddress(gidToIpBytes(gid));

/** The requests of a flow, in order. */
const asked = (flow: Flow | undefined): string[] =>
  flow?.operations.map(({ send: { opcode, length } }) => `${OPERATIONS[opcode] ?? opcode} ${length}`) ?? [];

function messagesOf(
  { analysis, messages }: Analyzed,
  source: string,
  destination: string,
  qpn: number,
): string[] {
  const isFrom = ({ a, b, id }: Connection, { connection, from }: Message) => {
    const [own, other] = from === 'a' ? [a, b] : [b, a];
    return id === connection && own.address === source && other.address === destination && other.qpn === qpn;
  };
  return messages
    .filter((message) => analysis.connections.some((connection) => isFrom(connection, message)))
    .map(({ operation, bytes, outcome }) => (outcome === 'completed' ? `${operation} ${bytes}` : outcome));
}

describe.each(['engine', 'model'] as const)('messages between %ss', (kind) => {
  test.each(SEEDS)('seed %i', (seed) => {
    const network = (['lossy', 'bursty', 'reordering', 'duplicating', 'narrow', 'all'] as const)[seed % 6];
    const run = runConnections({ ...RUN, seed, network, ends: [kind, kind] });
    const places: TapPlace[] = [...run.hosts, 'middle'];
    for (const place of places) {
      const analyzed = analyze(tap(run.network, place));
      for (const { a, b, aToB, bToA } of run.workload.connections) {
        const ends = [a, b].map(({ info }) => textOf(info.gid));
        if (place !== 'middle' && !ends.includes(textOf(place.gid))) continue;
        expect(messagesOf(analyzed, ends[0], ends[1], b.info.qpn)).toEqual(asked(aToB));
        expect(messagesOf(analyzed, ends[1], ends[0], a.info.qpn)).toEqual(asked(bToA));
      }
    }
  });
});

interface Counts {
  packets: number;
  acks: number;
  sequenceNaks: number;
  rnrNaks: number;
  marked: number;
  cnps: number;
  repeated: number;
}

const NONE: Counts = { packets: 0, acks: 0, sequenceNaks: 0, rnrNaks: 0, marked: 0, cnps: 0, repeated: 0 };

/** By direction, from the packets themselves. */
function countPackets(packets: readonly TappedPacket[]): Record<string, Counts> {
  const counts: Record<string, Counts> = {};
  const serials = new Set<number>();
  for (const { bytes, source, destination, trafficClass, serial } of packets) {
    const direction = directionOf(textOf(source), textOf(destination), bthDestQp(bytes, 0));
    counts[direction] ??= { ...NONE };
    const of = counts[direction];
    if ((trafficClass & 3) === 3) of.marked++;
    if (serials.has(serial!)) {
      of.repeated++;
      continue;
    }
    serials.add(serial!);
    of.packets++;
    if (bytes[0] === Opcode.CNP) of.cnps++;
    if (bytes[0] !== Opcode.RC_ACKNOWLEDGE) continue;
    if (bytes[12] === 0x60) of.sequenceNaks++;
    else if (aethKind(bytes[12]) === AethKind.RNR_NAK) of.rnrNaks++;
    else of.acks++;
  }
  return counts;
}

function countsOf({ directions }: Analyzed): Record<string, Counts> {
  const found: Record<string, Counts> = {};
  for (const { direction, counts } of directions) {
    const { packets, acks, naks, rnrNaks, ecnMarked: marked, cnps, repeatedFrames: repeated } = counts;
    if (packets === 0) continue;
    found[direction] = {
      packets,
      acks,
      sequenceNaks: naks['psn-sequence-error'] ?? 0,
      rnrNaks,
      marked,
      cnps,
      repeated,
    };
  }
  return found;
}

test.each(SEEDS)('counts, seed %i', (seed) => {
  const network = (['lossy', 'reordering', 'duplicating', 'narrow'] as const)[seed % 4];
  const run = runConnections({ ...RUN, seed: 100 + seed, network });
  if (run.addressing !== 'ipv4') return;
  for (const place of [run.hosts[0], 'middle'] as const) {
    const packets = tap(run.network, place, { repeat: 0.1, seed });
    expect(countsOf(analyze(packets))).toEqual(countPackets(packets));
  }
});

describe.each(SEEDS)('packets that the capture missed are not taken for losses, seed %i', (seed) => {
  // Only RNR NAKs make anybody send again.
  const run = runConnections({ ...RUN, seed: 200 + seed, network: 'clean', connections: 3 });
  const all = tap(run.network, run.hosts[0]);
  const shown = tap(run.network, run.hosts[0], { miss: 0.05, seed });
  const analyzed = analyze(shown);

  test('no packet is wrongly taken for a retransmission', () => {
    const wrong = trueFrames(shown, run.pathMtu).flatMap(
      ({ isRequest, cause, isBehind, direction, psn }, i) => {
        const again = isRequest && cause !== undefined && isBehind;
        const told = analyzed.causes[i];
        // Without Identifications what was missed and comes again may just be late.
        if (again === (told !== undefined) || (again && run.addressing !== 'ipv4')) return [];
        return [`frame ${i + 1} (${direction}, PSN ${psn}): ${cause ?? 'new'}, reported: ${told ?? 'new'}`];
      },
    );
    expect(wrong).toEqual([]);
  });

  test('packets that the capture missed are counted', () => {
    const [there, seen] = [all, shown].map((packets) => psnsOf(packets, run.pathMtu));
    const missed = [...there].filter((psn) => !seen.has(psn)).length;
    const counted = analyzed.directions.reduce((total, { counts }) => total + counts.missedByCapture, 0);
    expect(counted).toBeLessThanOrEqual(missed);
    // Where the answers are missing too, no packet shows that a request was missed.
    expect(counted).toBeGreaterThanOrEqual(Math.floor(0.7 * missed));
  });
});

/** All PSNs of requests, a READ's responses included, with their directions. */
function psnsOf(packets: readonly TappedPacket[], pathMtu: number): Set<string> {
  return new Set(
    trueFrames(packets, pathMtu).flatMap(({ isRequest, direction, psn, psns }) =>
      isRequest ? Array.from({ length: psns }, (_, i) => `${direction} ${psnAdd(psn, i)}`) : [],
    ),
  );
}
