/** The peer's retransmissions, and whether we gave it reason to. */
import { psnDiff, psnLessOrEqual } from '@node-roce/wire';
import type { WirePacket } from './wire.ts';

const ACK = 0x11;
/** Responses of RC, READ RESPONSE FIRST … ATOMIC ACKNOWLEDGE. */
export const isResponse = ({ opcode }: WirePacket) => opcode >= 0x0d && opcode <= 0x12;
const isAck = (p: WirePacket) => isResponse(p) && (p.opcode !== ACK || p.payload[12] >> 5 === 0);
const asksForAck = (p: WirePacket) => p.payload[8] >> 7 === 1;

export interface Repeat {
  psn: number;
  /** ms that the oldest request with AckReq had been without our ACK on the wire; 0: nothing was. */
  unanswered: number;
}

/**
 * The peer's retransmissions on one connection, one for each go-back-N. Times are those of the
 * bridge, so they distinguish our delay from the peer's: rxe's timer is not restarted by an ACK, and a guest
 * without its CPU finds its timer expired before it reads the ACK that came in time (docs/interop.md).
 */
export function repeats(packets: readonly WirePacket[], us: string): Repeat[] {
  const found: Repeat[] = [];
  let unacknowledged: WirePacket[] = [];
  let last: WirePacket | undefined;
  let highest: number | undefined;
  for (const packet of packets) {
    if (packet.source === us) {
      if (isAck(packet)) unacknowledged = unacknowledged.filter((p) => !psnLessOrEqual(p.psn, packet.psn));
      continue;
    }
    if (isResponse(packet)) continue;
    if (highest === undefined || psnDiff(packet.psn, highest) > 0) {
      highest = packet.psn;
      if (asksForAck(packet)) unacknowledged.push(packet);
    } else if (last && psnDiff(packet.psn, last.psn) <= 0) {
      const oldest = unacknowledged[0];
      found.push({ psn: packet.psn, unanswered: oldest ? (packet.time - oldest.time) * 1000 : 0 });
    }
    last = packet;
  }
  return found;
}

/**
 * Whether the peer's requester stopped as rxe's does (docs/quirks.md, "The requester goes wrong when"): it repeated a request though our
 * ACK was on the wire before, went on with one more at the most, and has sent none since, although we acknowledged its last one too.
 */
export function hasStopped(packets: readonly WirePacket[], us: string): boolean {
  const requests = packets.filter((packet) => packet.source !== us && !isResponse(packet));
  const acks = packets.filter((packet) => packet.source === us && isAck(packet));
  const last = requests.at(-1);
  const repeat = requests.findLast(({ psn }, i) =>
    requests.slice(Math.max(0, i - 2), i).some((before) => psnDiff(psn, before.psn) <= 0),
  );
  if (last === undefined || repeat === undefined || psnDiff(last.psn, repeat.psn) > 1) return false;
  return (
    acks.some(({ psn, time }) => time < repeat.time && psnLessOrEqual(repeat.psn, psn)) &&
    acks.some(({ psn, time }) => time > last.time && psnLessOrEqual(last.psn, psn))
  );
}
