/** Ways to break what is below the transport: IP, UDP, ICRC, BTH; and CNPs. */
import { gidFromText, ICRC_BYTES, icrcV2, setU16, u16, writeIcrc } from '@node-roce/wire';
import { acceptFrame, TESTER } from '../../src/virtual/line.ts';
import type { BrokenDevice, Mutant } from '../broken-device.ts';

const IP = 14;
const UDP = IP + 20;
const BTH_TVER = 1;
const CNP = 0x81;

/** Frames that do not fit are dropped. */
const onlyIf = (fits: (frame: Uint8Array) => boolean): Mutant['accept'] => {
  return (frame) => (fits(frame) ? acceptFrame(frame) : undefined);
};

/** Bytes from the BTH on are changed. */
const changed = (change: (bytes: Uint8Array) => unknown): Mutant['arrive'] => {
  return (packet) => {
    const bytes = packet.bytes.slice();
    change(bytes);
    return { ...packet, bytes };
  };
};

const failAll = ({ victims }: BrokenDevice): void => {
  for (const { pair } of victims) pair.fail();
};

export const headerMutants: Readonly<Record<string, Mutant>> = {
  'the ICRC is not looked at': {
    seenBy: ['HDR-01', 'ACK-14', 'RD-11'],
    arrive: (packet) => ({ ...packet, corrupt: false }),
  },
  'the P_Key is not looked at': { seenBy: ['HDR-02'], without: 'checkHeader' },
  'the membership is compared, too': {
    seenBy: ['HDR-03'],
    hear: (packet) => (packet.pkey === 0xffff ? packet : undefined),
  },
  'an unknown queue pair is the first one': {
    seenBy: ['HDR-04', 'ACK-16'],
    arrive: (packet, { victims }) => {
      const bytes = packet.bytes.slice();
      const qpn = (bytes[5] << 16) | u16(bytes, 6);
      const [first] = victims;
      if (first === undefined || victims.some(({ pair }) => pair.info.qpn === qpn)) return packet;
      bytes.set([first.pair.info.qpn >> 16, first.pair.info.qpn >> 8, first.pair.info.qpn], 5);
      return { ...packet, bytes };
    },
  },
  'the UDP length is not looked at': {
    seenBy: ['HDR-20'],
    accept: (frame) => {
      const length = frame.length - UDP;
      if (u16(frame, UDP + 4) === length) return acceptFrame(frame);
      const right = frame.slice();
      setU16(right, UDP + 4, length);
      writeIcrc(right, right.length - ICRC_BYTES, icrcV2(right, IP, right.length - ICRC_BYTES));
      return acceptFrame(right);
    },
  },
  'a source port for each packet': {
    seenBy: ['REQ-06'],
    leave: (packet) => ({ ...packet, sourcePort: 0xc000 | packet.bytes[11] }),
  },
  'the header version is not looked at': {
    seenBy: ['HDR-05'],
    arrive: changed((bytes) => {
      bytes[BTH_TVER] &= 0xf0;
    }),
  },
  'reserved bits have to be 0': {
    seenBy: ['HDR-06'],
    arrive: (packet) => ((packet.bytes[4] & 0x3f) === 0 ? packet : undefined),
  },
  'FECN drops the packet': {
    seenBy: ['HDR-06'],
    arrive: (packet) => (packet.bytes[4] & 0x80 ? undefined : packet),
  },
  'only one source port': {
    seenBy: ['HDR-07'],
    accept: onlyIf((frame) => u16(frame, UDP) === 0xc123),
  },
  'source port 0 dropped': { seenBy: ['HDR-07'], accept: onlyIf((frame) => u16(frame, UDP) !== 0) },
  'identification has to be 0': { seenBy: ['HDR-11'], accept: onlyIf((frame) => u16(frame, IP + 4) === 0) },
  'TTL 1 dropped': { seenBy: ['HDR-12'], accept: onlyIf((frame) => frame[IP + 8] > 1) },
  'DSCP has to be 0': { seenBy: ['HDR-12'], accept: onlyIf((frame) => frame[IP + 1] >> 2 === 0) },
  'DF has to be 1': { seenBy: ['HDR-13'], accept: onlyIf((frame) => (frame[IP + 6] & 0x40) !== 0) },
  'a UDP checksum drops the packet': {
    seenBy: ['HDR-08'],
    accept: onlyIf((frame) => u16(frame, UDP + 6) === 0),
  },
  'the UDP checksum is not looked at': {
    seenBy: ['HDR-08'],
    accept: (frame) => {
      const copy = frame.slice();
      copy.fill(0, UDP + 6, UDP + 8);
      return acceptFrame(copy);
    },
  },
  'padding of the frame makes it bad': {
    seenBy: ['HDR-09'],
    accept: onlyIf((frame) => frame.length === IP + u16(frame, IP + 2)),
  },
  'the source address is not looked at': {
    seenBy: ['HDR-10', 'ACK-16'],
    arrive: (packet) => ({ ...packet, source: gidFromText(TESTER.ip) }),
  },
  'no CNPs': { seenBy: ['ECN-01'], model: { notifies: false } },
  'a CNP is answered': {
    seenBy: ['ECN-02', 'CNP-02'],
    arrive: (packet, { victims }) => {
      if (packet.bytes[0] === CNP) victims[0]?.inject({ psn: 0 });
      return packet;
    },
  },
  'a CNP ends the connection': {
    seenBy: ['CNP-01', 'ECN-02'],
    arrive: (packet, device) => {
      if (packet.bytes[0] === CNP) failAll(device);
      return packet;
    },
  },
  'a short datagram ends everything': {
    seenBy: ['ROB-03'],
    arrive: (packet, device) => {
      if (packet.bytes.length < 12) failAll(device);
      return packet;
    },
  },
  'a cut RETH is filled up': {
    seenBy: ['ROB-02'],
    arrive: (packet) => {
      if (packet.bytes[0] !== 0x0a || packet.bytes.length >= 28) return packet;
      const bytes = new Uint8Array(28);
      bytes.set(packet.bytes);
      return { ...packet, bytes };
    },
  },
  'a pad count of more than the payload is 0': {
    seenBy: ['ROB-01'],
    arrive: changed((bytes) => {
      if (bytes.length === 12) bytes[1] &= ~0x30;
    }),
  },
  'pad bytes are payload': {
    seenBy: ['LEN-18'],
    arrive: changed((bytes) => {
      if (bytes.length > 28) bytes[1] &= ~0x30;
    }),
  },
  'a wrong ICRC in answers': {
    seenBy: ['RSP-01'],
    leave: (packet) => ({ ...packet, corrupt: true }),
  },
  'pad bytes that are not 0': {
    seenBy: ['RSP-01'],
    leave: (packet) => {
      const bytes = packet.bytes.slice();
      if ((bytes[1] >> 4) & 3) bytes[bytes.length - 1] = 1;
      return { ...packet, bytes };
    },
  },
  'MigReq 0 in answers': {
    seenBy: ['RSP-02'],
    leave: (packet) => {
      const bytes = packet.bytes.slice();
      bytes[1] &= ~0x40;
      return { ...packet, bytes };
    },
  },
};
