/** Frames for tests of this folder: as real adapters sent them, and under other link layers. */
import { LinkType } from '@node-roce/pcap';
import { buildPacket, fromHex, parseFrame } from '@node-roce/wire';

/** Frames of real adapters: the CNP is a ConnectX-4 Lx's, the ACK a Huawei NIC's, the v1 WRITE a ConnectX's. */
export const CNP = fromHex(
  'e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118000000000000000000000000000000000000000082fd002a',
);
export const ACK = fromHex(
  '183d5ebf5192183d5ebf43710800450200300000400040112d60c0a84604c0a84606004512b7001c00001140ffff00000048000000000600000090d7755d',
);
export const WRITE_V1 = fromHex(
  '7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f00000200000000000000000000ffff0f0000020a70ffff0000010a80a788bc000055d4c0726000000047b3000000050000000001000000e3d856bb',
);
/** Any RC ATOMIC over IPv6, with all that a packet can have in front of it. */
export const ATOMIC_V6 = (() => {
  const parsed = parseFrame(ACK);
  if (!parsed.ok) throw new Error(parsed.detail);
  return buildPacket({
    version: 2,
    ethernet: {
      ...parsed.packet.ethernet!,
      etherType: 0x86dd,
      vlans: [
        { tpid: 0x88a8, tci: 5 },
        { tpid: 0x8100, tci: 0x2007 },
      ],
    },
    ip: {
      version: 6,
      trafficClass: 0x6b,
      flowLabel: 7,
      nextHeader: 17,
      hopLimit: 9,
      source: fromHex('20010db8000000000000000000000001'),
      destination: fromHex('20010db8000000000000000000000002'),
    },
    bth: { ...parsed.packet.bth, opcode: 0x13 },
    extensions: { atomicEth: { va: 8n, rkey: 1, swapAdd: 2n, compare: 3n } },
    payload: new Uint8Array(0),
  });
})();

/** The frame under another link layer. */
export function under(linkType: number, frame: Uint8Array): Uint8Array {
  const tagged = frame[12] === 0x88 && frame[13] === 0xa8;
  const at = tagged ? 20 : 12;
  const type = frame.subarray(at, at + 2);
  const rest = frame.subarray(at + 2);
  switch (linkType) {
    case LinkType.LINUX_SLL:
      // With its tags, where it has any: captures put them back behind the header.
      return Uint8Array.of(0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, ...frame.subarray(12));
    case LinkType.LINUX_SLL2:
      // The first type stands in front; the tags follow the header.
      return Uint8Array.of(
        ...[...frame.subarray(12, 14), 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0],
        ...frame.subarray(14),
      );
    case LinkType.NULL:
      return Uint8Array.of(type[0] === 0x86 ? 24 : 2, 0, 0, 0, ...rest);
    case LinkType.RAW:
      return rest.slice();
    default:
      return frame;
  }
}
