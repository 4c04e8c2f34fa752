/** Frames for the interface of an AF_XDP link that it has to drop and count, and such as are not for it. */
import { buildPacket, type PacketInput, type Random } from '@node-roce/wire';

export interface HostileFrame {
  what: string;
  /** The count of the link that it belongs to; absent: the kernel's, whatever that does with it. */
  count?: 'malformed' | 'checksumErrors' | 'badSources' | 'runts' | 'icrcBad';
  frame: Uint8Array;
}

/** Where frames go, and whom they claim to come from. MAC addresses are 12 hexadecimal digits. */
export interface Target {
  macs: { source: string; destination: string };
  ip4: { source: string; destination: string };
  ip6: { source: string; destination: string };
  qpn: number;
}

/** No packet here has it: what the kernel should have got shows as a wrong ICRC if the link takes it. */
const WRONG_ICRC = 0x0bad_0bad;

interface Changes extends Omit<Partial<PacketInput>, 'ip' | 'version'> {
  version?: 4 | 6;
  ip?: object;
}

/** A packet for the queue pair that is right but for its ICRC. */
export function plainFrame(target: Target, { version = 4, ethernet, ip, bth, ...rest }: Changes = {}) {
  return buildPacket({
    ethernet: { ...target.macs, ...ethernet },
    ip: { version, ...(version === 4 ? target.ip4 : target.ip6), ...ip } as NonNullable<PacketInput['ip']>,
    bth: { opcode: 'RC_SEND_ONLY', destQp: target.qpn, psn: 0x123456, ...bth },
    payload: new Uint8Array(64).fill(0x5a),
    icrc: WRONG_ICRC,
    ...rest,
  });
}

/** One frame of each kind. */
export function hostileFrames(target: Target): HostileFrame[] {
  const frame = (changes?: Changes) => plainFrame(target, changes);
  const v4 = (ip: object, rest: object = {}) => frame({ ip, ...rest });
  const v6 = (ip: object, rest: object = {}) => frame({ version: 6, ip, ...rest });
  const whole = frame().length - 14;
  const tagged = (tci: number) => frame({ ethernet: { vlans: [{ tpid: 0x8100, tci }] } });
  return [
    { what: 'a wrong ICRC', count: 'icrcBad', frame: frame() },
    { what: 'a wrong ICRC over IPv6', count: 'icrcBad', frame: frame({ version: 6 }) },
    { what: 'a wrong ICRC behind a tag of VLAN 0', count: 'icrcBad', frame: tagged(0xe000) },
    { what: 'bytes behind the packet', count: 'icrcBad', frame: frame({ trailer: new Uint8Array(18) }) },
    {
      what: 'a payload of headers without end',
      count: 'icrcBad',
      frame: frame({ payload: new Uint8Array(1400).map((_, i) => [0, 0, 0xff, 0xff][i % 4]) }),
    },

    { what: 'a wrong IPv4 checksum', count: 'checksumErrors', frame: v4({ checksum: 1 }) },

    { what: 'an IPv4 length beyond the frame', count: 'malformed', frame: v4({ totalLength: whole + 1 }) },
    { what: 'an IPv4 length of 65535', count: 'malformed', frame: v4({ totalLength: 65_535 }) },
    { what: 'an IPv4 length of less than its header', count: 'malformed', frame: v4({ totalLength: 19 }) },
    { what: 'an IPv4 length of 0', count: 'malformed', frame: v4({ totalLength: 0 }) },
    {
      what: 'a UDP length of less than that of IP',
      count: 'malformed',
      frame: frame({ udp: { length: 60 } }),
    },
    { what: 'a UDP length beyond the packet', count: 'malformed', frame: frame({ udp: { length: 65_535 } }) },
    {
      what: 'a UDP length of less than its header',
      count: 'malformed',
      frame: v4({ totalLength: 27 }, { udp: { length: 7 } }),
    },
    { what: 'an IPv6 length beyond the frame', count: 'malformed', frame: v6({ payloadLength: 1000 }) },
    { what: 'an IPv6 length of 0', count: 'malformed', frame: v6({ payloadLength: 0 }) },
    {
      what: 'a frame that is cut behind its BTH',
      count: 'malformed',
      frame: frame().subarray(0, 14 + 20 + 8 + 12),
    },

    {
      what: 'no room for an ICRC',
      count: 'runts',
      frame: v4({ totalLength: 20 + 8 + 12 }, { udp: { length: 8 + 12 } }),
    },
    {
      what: 'no room for a BTH over IPv6',
      count: 'runts',
      frame: v6({ payloadLength: 8 }, { udp: { length: 8 } }),
    },

    ...[
      '0.0.0.0',
      '0.1.2.3',
      '127.0.0.1',
      '224.0.0.1',
      '239.255.255.255',
      '240.0.0.1',
      '255.255.255.255',
    ].map((source): HostileFrame => ({ what: `from ${source}`, count: 'badSources', frame: v4({ source }) })),
    ...['::', '::1', 'ff02::1'].map(
      (source): HostileFrame => ({ what: `from ${source}`, count: 'badSources', frame: v6({ source }) }),
    ),
    {
      what: 'from the link’s own address',
      count: 'badSources',
      frame: v4({ source: target.ip4.destination }),
    },
    {
      what: 'from the link’s own address over IPv6',
      count: 'badSources',
      frame: v6({ source: target.ip6.destination }),
    },

    { what: 'a tag of VLAN 5', frame: tagged(5) },
    {
      what: 'two tags',
      frame: frame({
        ethernet: {
          vlans: [
            { tpid: 0x88a8, tci: 0 },
            { tpid: 0x8100, tci: 0 },
          ],
        },
      }),
    },
    { what: 'IPv4 options', frame: v4({ options: Uint8Array.of(1, 1, 1, 0) }) },
    { what: 'a first fragment', frame: v4({ flagsAndOffset: 0x2000 }) },
    { what: 'a later fragment', frame: v4({ flagsAndOffset: 0x0010 }) },
    { what: 'TCP', frame: v4({ protocol: 6 }) },
    { what: 'an IPv6 extension header', frame: v6({ nextHeader: 0 }) },
    { what: 'an IPv6 fragment', frame: v6({ nextHeader: 44 }) },
    { what: 'a wrong version of IP', frame: flipped(frame(), 14, 0x70) },
    { what: 'an EtherType of IPv6 before IPv4', frame: flipped(frame(), 13, 0xdd) },
    { what: 'another MAC address', frame: frame({ ethernet: { destination: '020000000077' } }) },
    { what: 'another address', frame: v4({ destination: '10.77.0.99' }) },
    { what: 'another UDP port', frame: frame({ udp: { destinationPort: 4792 } }) },
    { what: 'another queue pair', frame: frame({ bth: { destQp: target.qpn ^ 1, opcode: 'RC_SEND_ONLY' } }) },
    { what: 'queue pair 0', frame: frame({ bth: { destQp: 0, opcode: 'RC_SEND_ONLY' } }) },
    { what: 'a frame that is cut in its BTH', frame: frame().subarray(0, 14 + 20 + 8 + 11) },
    { what: 'a frame that is cut in its IP header', frame: frame().subarray(0, 14 + 12) },
    { what: 'a frame of a header alone', frame: frame().subarray(0, 14) },
    { what: 'a broadcast', frame: v4({ destination: '10.77.0.255' }) },
  ];
}

/** The frame with bits of one byte changed. */
function flipped(frame: Uint8Array, at: number, bits: number): Uint8Array {
  frame[at] ^= bits;
  return frame;
}

/** A frame with a few bytes changed, or cut, or longer than its headers. */
export function mutant(target: Target, random: Random): Uint8Array {
  const frame = plainFrame(target, { version: random.pick([4, 6] as const) });
  for (let i = random.between(1, 4); i > 0; i--) frame[random.between(12, frame.length - 1)] = random.next();
  if (random.chance(0.2)) return frame.subarray(0, random.between(14, frame.length - 1));
  if (random.chance(0.1)) return new Uint8Array([...frame, ...new Uint8Array(random.between(1, 200))]);
  return frame;
}
