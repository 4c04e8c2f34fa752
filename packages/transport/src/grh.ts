/**
 * The 40 bytes before a datagram's payload in a receive entry: the packet's IPv6 header, or 20 zeros and
 * its IPv4 header (IBTA annex A17.4.5.1). A UDP socket does not show headers: they are put together again
 * from what the link knows.
 */
import {
  ICRC_BYTES,
  IP_MAY_FRAGMENT,
  IpProtocol,
  internetChecksum,
  setU16,
  setU32,
  UDP_BYTES,
} from '@node-roce/wire';
import { RX_SLOT_WORDS, Rx } from './batch.ts';
import type { Context } from './context.ts';
import { EMPTY_GID } from './control.ts';
import type { InboundPacket } from './inbound.ts';

export const GRH_BYTES = 40;
const IPV4_AT = 20;
const IPV4_BYTES = 20;
const DONT_FRAGMENT = 0x4000;

/** Writes the GRH of the current packet. The IPv6 flow label is not known and left 0. */
export function writeGrh(grh: Uint8Array, context: Context, { batch, index }: InboundPacket): void {
  const { slots, sources } = batch;
  const w = index * RX_SLOT_WORDS;
  const local = slots[w + Rx.LOCAL];
  const own = context.gids[local];
  const destination = own !== undefined && own !== EMPTY_GID ? own.gid : context.addresses.groupGid(local);
  const following = UDP_BYTES + slots[w + Rx.LENGTH] + ICRC_BYTES;
  const s = index * 16;
  grh.fill(0);
  if (!isMapped(sources, s)) {
    setU32(grh, 0, 0x6000_0000 | (slots[w + Rx.TRAFFIC_CLASS] << 20));
    setU16(grh, 4, following);
    grh[6] = IpProtocol.UDP;
    grh[7] = slots[w + Rx.HOP_LIMIT];
    for (let i = 0; i < 16; i++) {
      grh[8 + i] = sources[s + i];
      if (destination) grh[24 + i] = destination[i];
    }
    return;
  }
  grh[IPV4_AT] = 0x45;
  grh[IPV4_AT + 1] = slots[w + Rx.TRAFFIC_CLASS];
  setU16(grh, IPV4_AT + 2, IPV4_BYTES + following);
  setU16(grh, IPV4_AT + 4, slots[w + Rx.IP_ID]);
  if ((slots[w + Rx.IP_ID] & IP_MAY_FRAGMENT) === 0) setU16(grh, IPV4_AT + 6, DONT_FRAGMENT);
  grh[IPV4_AT + 8] = slots[w + Rx.HOP_LIMIT];
  grh[IPV4_AT + 9] = IpProtocol.UDP;
  for (let i = 0; i < 4; i++) {
    grh[IPV4_AT + 12 + i] = sources[s + 12 + i];
    if (destination) grh[IPV4_AT + 16 + i] = destination[12 + i];
  }
  setU16(grh, IPV4_AT + 10, internetChecksum(grh, IPV4_AT));
}

/** `::ffff:0:0/96` at `o`. */
function isMapped(b: Uint8Array, o: number): boolean {
  for (let i = 0; i < 10; i++) if (b[o + i] !== 0) return false;
  return b[o + 10] === 0xff && b[o + 11] === 0xff;
}
