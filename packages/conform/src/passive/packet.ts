/** A packet of a trace, as the passive rules see it. */
import type { RocePacket } from '@node-roce/capture';
import {
  type AtomicEthValue,
  aethMsn,
  aethSyndrome,
  decodeAtomicEth,
  decodeReth,
  type OpcodeInfo,
  type RethValue,
} from '@node-roce/wire';

export interface TracePacket {
  /** From 1, as Wireshark counts. */
  frame: number;
  /** ns. */
  time: number;
  info: OpcodeInfo;
  psn: number;
  /** Bytes of payload. */
  length: number;
  /** −1 without an AETH. */
  syndrome: number;
  msn: number;
  reth: RethValue | undefined;
  /** Address, key and operands of an atomic. */
  atomic: string | undefined;
  /** The packet was marked by a switch. */
  isMarked: boolean;
  becn: boolean;
  /** Bytes behind the headers of a CNP that are not 0. */
  isCnpFilled: boolean;
}

/** Address, key and operands. The field for the value compared with means nothing in a FETCH ADD. */
export function atomicText({ key }: OpcodeInfo, { va, rkey, swapAdd, compare }: AtomicEthValue): string {
  return [va, rkey, swapAdd, ...(key.endsWith('FETCH_ADD') ? [] : [compare])].join();
}

/** A copy of a packet of a capture; undefined if the capture cut its headers. */
export function tracePacket(packet: RocePacket): TracePacket | undefined {
  const { frame, time, info, psn, payloadLength, bytes, bth, end, payload, ecn, becn } = packet;
  if (payload > end) return undefined;
  const { aeth, reth, atomicEth, cnp } = info.offsets;
  return {
    frame,
    time,
    info,
    psn,
    length: payloadLength,
    syndrome: aeth < 0 ? -1 : aethSyndrome(bytes, bth + aeth),
    msn: aeth < 0 ? 0 : aethMsn(bytes, bth + aeth),
    reth: reth < 0 ? undefined : decodeReth(bytes, bth + reth),
    atomic: atomicEth < 0 ? undefined : atomicText(info, decodeAtomicEth(bytes, bth + atomicEth)),
    isMarked: ecn === 3,
    becn,
    isCnpFilled: cnp >= 0 && bytes.subarray(bth + cnp, bth + cnp + 16).some((byte) => byte !== 0),
  };
}
