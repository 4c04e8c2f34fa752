/** Ways to break unreliable connections and datagrams. */
import type { ModelPacket } from '@node-roce/sim';
import { gidFromText, opcodeInfo, Transport } from '@node-roce/wire';
import type { Mutant, Victim } from '../broken-device.ts';

const UD_SEND_ONLY = 0x64;
const rowOf = ({ opcode }: ModelPacket) => opcodeInfo(opcode)!;
const isUc = (packet: ModelPacket): boolean => rowOf(packet).transport === Transport.UC;
const isUd = (packet: ModelPacket): boolean => rowOf(packet).transport === Transport.UD;

/** The PSN that a queue pair of UC expects: one more than that of the last packet. */
function expected({ notes }: Victim, packet: ModelPacket): number {
  const psn = (notes.expected as number | undefined) ?? packet.psn;
  notes.expected = (packet.psn + 1) & 0xff_ffff;
  return psn;
}

export const unreliableMutants: Readonly<Record<string, Mutant>> = {
  'UC acknowledges': {
    seenBy: ['UC-01', 'UC-08'],
    hear: (packet, { inject, rc }) => {
      if (rc === undefined) inject({ psn: packet.psn });
      return packet;
    },
  },
  'UC drops what is out of sequence': {
    seenBy: ['UC-02', 'UC-04'],
    hear: (packet, victim) => (isUc(packet) && expected(victim, packet) !== packet.psn ? undefined : packet),
  },
  'UC delivers a message with a gap': {
    seenBy: ['UC-03'],
    hear: (packet, victim) => (isUc(packet) ? { ...packet, psn: expected(victim, packet) } : packet),
  },
  'UC drops all after a broken message': {
    seenBy: ['UC-03', 'UC-05'],
    hear: (packet, victim) => {
      if (!isUc(packet)) return packet;
      if (expected(victim, packet) !== packet.psn && !rowOf(packet).first) victim.notes.broken = true;
      return victim.notes.broken ? undefined : packet;
    },
  },
  'UC ends without a receive': {
    seenBy: ['UC-06'],
    hear: (packet, { pair, notes }) => {
      if (isUc(packet) && notes.first === undefined) pair.fail();
      notes.first = true;
      return packet;
    },
  },
  'UC ends with a wrong key': {
    seenBy: ['UC-07'],
    hear: (packet, { pair }) => {
      if (isUc(packet) && packet.reth?.rkey === 0xbad) pair.fail();
      return packet;
    },
  },
  'UC drops PSN 0': {
    seenBy: ['UC-10'],
    hear: (packet) => (isUc(packet) && packet.psn === 0 ? undefined : packet),
  },
  'UC takes a gap in a WRITE for none': {
    seenBy: ['UC-09'],
    hear: (packet, victim) => (isUc(packet) ? { ...packet, psn: expected(victim, packet) } : packet),
  },
  'UC gives no immediate': {
    seenBy: ['UC-09'],
    hear: (packet) => (isUc(packet) && packet.immediate ? { ...packet, immediate: 0 } : packet),
  },
  'the P_Key of a datagram is not looked at': {
    seenBy: ['UD-11'],
    hear: (packet) => (packet.deth ? { ...packet, pkey: 0xffff } : packet),
  },
  'UC waits for an ACK': {
    seenBy: ['UC-11'],
    made: (pair, service) => {
      if (service === 'UC') pair.pollSend = () => [];
    },
  },
  'another address in the GRH': {
    seenBy: ['UD-01'],
    arrive: (packet) => {
      const isDatagram = packet.bytes[0] === UD_SEND_ONLY;
      return isDatagram ? { ...packet, source: gidFromText('10.77.0.50') } : packet;
    },
  },
  'another source QPN in the completion': {
    seenBy: ['UD-01'],
    hear: (packet) => (packet.deth ? { ...packet, deth: { ...packet.deth, srcQpn: 5 } } : packet),
  },
  'the Q_Key is not looked at': {
    seenBy: ['UD-02'],
    hear: (packet) => (packet.deth ? { ...packet, deth: { ...packet.deth, qkey: 0x1111_1111 } } : packet),
  },
  'datagrams in order of PSNs only': {
    seenBy: ['UD-03'],
    hear: (packet, victim) => (isUd(packet) && expected(victim, packet) !== packet.psn ? undefined : packet),
  },
  'a long datagram ends the queue pair': {
    seenBy: ['UD-04'],
    hear: (packet, { pair }) => {
      if (isUd(packet) && packet.payload.length > 200) pair.fail();
      return packet;
    },
  },
  'a SEND of RC is a datagram': {
    seenBy: ['UD-05'],
    hear: (packet, { rc }) =>
      rc === undefined && packet.opcode === 4
        ? { ...packet, opcode: UD_SEND_ONLY, deth: { qkey: 0x1111_1111, srcQpn: 1 } }
        : packet,
  },
  'source QPN 0 in datagrams': {
    seenBy: ['UD-06'],
    send: (packet) => (packet.deth ? [{ ...packet, deth: { ...packet.deth, srcQpn: 0 } }] : [packet]),
  },
  'a privileged Q_Key is sent as it is': {
    seenBy: ['UD-07'],
    send: (packet) =>
      packet.deth?.qkey === 0x5555 ? [{ ...packet, deth: { ...packet.deth, qkey: 0x8000_1234 } }] : [packet],
  },
};
