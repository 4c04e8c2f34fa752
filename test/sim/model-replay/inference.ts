/**
 * The attributes of a queue pair, inferred from traffic where no program printed them.
 *
 * Path MTU: the largest payload of a packet that something follows, else room for all. Regions: for each
 * key the range from the lowest to the highest address asked for. Contents: at each READ and atomic, what
 * the real responder answered. So for programs other than rxprobe the contents of READ responses are
 * taken on trust, and only their cutting, PSNs, MSNs and lengths are a prediction.
 */
import { bytesAt, type ModelRegion, type Responder, writeU64 } from '@node-roce/sim';
import { Access } from '@node-roce/transport';
import { opcodeInfo, PATH_MTUS, psnDiff } from '@node-roce/wire';
import type { Connection, TracePacket } from './trace.ts';

const ALL_ACCESS = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;

export function inferPathMtu(connection: Connection): number {
  const largest = Math.max(0, ...connection.packets.map(({ packet }) => packet.payload.length));
  const full = connection.packets.find(({ packet }) => {
    const row = opcodeInfo(packet.opcode)!;
    return row.hasPayload && !row.last;
  });
  if (full !== undefined) return full.packet.payload.length;
  return PATH_MTUS.find((mtu) => mtu >= Math.max(largest, 1024))!;
}

/** Range of remote memory that a request names. */
function rangeOf({ packet }: TracePacket): { va: bigint; rkey: number; length: number } | undefined {
  if (packet.reth !== undefined && packet.reth.length > 0) return packet.reth;
  return packet.atomicEth === undefined ? undefined : { ...packet.atomicEth, length: 8 };
}

export function inferRegions(requests: TracePacket[]): ModelRegion[] {
  const addresses = new Map<number, bigint[]>();
  for (const request of requests) {
    const range = rangeOf(request);
    if (range === undefined) continue;
    const known = addresses.get(range.rkey) ?? [];
    addresses.set(range.rkey, [...known, range.va, range.va + BigInt(range.length)]);
  }
  return [...addresses].map(([rkey, known]) => {
    const sorted = known.sort((a, b) => Number(a - b));
    const bytes = new Uint8Array(Number(sorted[sorted.length - 1] - sorted[0]));
    return { rkey, base: sorted[0], bytes, access: ALL_ACCESS, invalidatable: false };
  });
}

/** Before a new READ or atomic: sets memory to the values in the real responder's answer. */
export function presetMemory(responder: Responder, request: TracePacket, replies: TracePacket[]): void {
  const { packet, time } = request;
  if (packet.psn !== responder.ePsn) return;
  const range = rangeOf(request);
  if (range === undefined) return;
  const target = bytesAt(responder.memory, range.rkey, range.va, range.length);
  const { pathMtu } = responder.config;
  for (const { packet: reply } of replies.filter((r) => r.time >= time)) {
    const index = psnDiff(reply.psn, packet.psn);
    if (packet.atomicEth !== undefined && index === 0 && reply.original !== undefined) {
      writeU64(target, reply.original);
      return;
    }
    const isAnswer = opcodeInfo(reply.opcode)!.isReadResponse && index >= 0 && index * pathMtu < range.length;
    if (packet.reth !== undefined && opcodeInfo(packet.opcode)!.isReadRequest && isAnswer) {
      target.set(reply.payload, index * pathMtu);
    }
  }
}
