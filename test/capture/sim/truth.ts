/**
 * The truth about a simulated capture, from the senders' own record and plain bookkeeping over the packets that the tap saw. Nothing in here guesses.
 */
import { decodePacket, type TappedPacket } from '@node-roce/sim';
import type { RetransmitCause } from '@node-roce/transport';
import { formatIpAddress, gidToIpBytes, opcodeInfo, psnAdd, psnLessThan } from '@node-roce/wire';

/** A frame of the capture; its number is its place in the list, from 1. */
export interface TrueFrame {
  event: TappedPacket['event'];
  /** Source, destination and destination QPN: one direction of one connection. */
  direction: string;
  isRequest: boolean;
  psn: number;
  /** PSNs that it takes: a READ request those of its responses (IBTA vol 1 §9.7.2). */
  psns: number;
  /** The network turned a bit over: nothing in it can be relied on. */
  corrupt: boolean;
  /** The tap has shown this very packet before: the network or the mirror copied it. */
  isCopy: boolean;
  /** The tap has shown its PSN, or a later one, of what was sent before it: a retransmission without that looks new. */
  isBehind: boolean;
  /** The tap has shown a packet with the same PSN so little before that it might be a copy of that. */
  isSoon: boolean;
  /** The tap has shown its PSN in a damaged packet, which its sender sent before it. */
  isShownDamaged: boolean;
  /** Its sender had sent it before, and retransmitted it for this cause. */
  cause: RetransmitCause | undefined;
}

/** A packet that is repeated within this, µs, looks like a mirror's copy where no Identification decides (docs/capture-causes.md). */
const COPY_US = 1.5;

export const directionOf = (source: string, destination: string, destQp: number): string =>
  `${source} → ${destination} ${destQp}`;

const addresses = new Map<string, string>();
function addressOf(gid: Uint8Array): string {
  const key = gid.join();
  let text = addresses.get(key);
  if (text === undefined) {
    text = formatIpAddress(gidToIpBytes(gid));
    addresses.set(key, text);
  }
  return text;
}

/** @param pathMtu bytes */
export function trueFrames(packets: readonly TappedPacket[], pathMtu: number): TrueFrame[] {
  const serials = new Set<number>();
  /** By direction: when the requests that were shown were sent, and what is past their PSNs. */
  const sent = new Map<string, { serial: number; end: number }[]>();
  /** By direction and PSN: when it was shown last. */
  const shownAt = new Map<string, number>();
  /** Direction and PSN of damaged packets, as they stand there. */
  const damaged = new Set<string>();
  return packets.map(({ event, time, bytes, source, destination, corrupt, serial, retransmission }) => {
    const decoded = decodePacket(bytes);
    const keyOf = (destQpn: number, psn: number) =>
      `${directionOf(addressOf(source), addressOf(destination), destQpn)} ${psn}`;
    const isReadable = corrupt && decoded.ok;
    if (isReadable) damaged.add(keyOf(decoded.packet.destQpn, decoded.packet.psn));
    if (corrupt || !decoded.ok) {
      return {
        event,
        direction: isReadable
          ? directionOf(addressOf(source), addressOf(destination), decoded.packet.destQpn)
          : '',
        isRequest: false,
        psn: 0,
        psns: 1,
        corrupt: true,
        isCopy: false,
        isBehind: false,
        isSoon: false,
        isShownDamaged: false,
        cause: undefined,
      };
    }
    const { psn, opcode, destQpn, reth } = decoded.packet;
    const info = opcodeInfo(opcode)!;
    const direction = directionOf(addressOf(source), addressOf(destination), destQpn);
    const isCopy = serials.has(serial!);
    serials.add(serial!);
    const { isRequest, isReadRequest } = info;
    const psns = isReadRequest ? Math.max(1, Math.ceil(reth!.length / pathMtu)) : 1;
    const key = keyOf(destQpn, psn);
    const isSoon = isRequest && time - (shownAt.get(key) ?? Number.NEGATIVE_INFINITY) < COPY_US;
    if (isRequest) shownAt.set(key, time);
    let isBehind = false;
    if (isRequest) {
      const shown = sent.get(direction) ?? [];
      sent.set(direction, shown);
      isBehind = shown.some((other) => other.serial < serial! && psnLessThan(psn, other.end));
      shown.push({ serial: serial!, end: psnAdd(psn, psns) });
    }
    return {
      event,
      direction,
      isRequest,
      psn,
      psns,
      corrupt: false,
      isCopy,
      isBehind,
      isSoon,
      isShownDamaged: damaged.has(key),
      cause: retransmission,
    };
  });
}
