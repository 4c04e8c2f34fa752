/** Ways to break XRC: bytes of packets, as the header with the number is below the model's reliable connections. */
import { decodePacket, encodePacket, type ModelPacket, type SimPacket } from '@node-roce/sim';
import { Opcode } from '@node-roce/wire';
import type { Mutant } from '../broken-device.ts';

/** A packet with the number of a queue, changed; others stay as they are. */
function named(packet: SimPacket, change: (named: ModelPacket & { srqn: number }) => ModelPacket): SimPacket {
  const decoded = decodePacket(packet.bytes);
  if (!decoded.ok || decoded.packet.srqn === undefined) return packet;
  return { ...packet, bytes: encodePacket(change({ ...decoded.packet, srqn: decoded.packet.srqn })) };
}

/** Packets arrive with the number of the queue that the first of all named. */
function onlyOne(seenBy: readonly string[], isOf: (packet: ModelPacket) => boolean): Mutant {
  return {
    seenBy,
    arrive: (packet, { notes }) =>
      named(packet, (each) => {
        notes.srqn ??= each.srqn;
        return isOf(each) ? { ...each, srqn: notes.srqn as number } : each;
      }),
  };
}

const isLast = ({ opcode }: ModelPacket): boolean => opcode === Opcode.XRC_SEND_LAST;

export const extendedMutants: Readonly<Record<string, Mutant>> = {
  'the queue of XRC is not checked': { seenBy: ['XRC-03'], without: 'checkSrq' },
  'any number stands for the queue of XRC': onlyOne(['XRC-01'], () => true),
  'a WRITE of XRC may name any queue': onlyOne(
    ['XRC-01'],
    ({ opcode }) => opcode === Opcode.XRC_RDMA_WRITE_ONLY,
  ),
  'the queue of a LAST is not looked at': onlyOne(['XRC-03'], isLast),
  'the packets of XRC behind the first name no queue': {
    seenBy: ['XRC-02'],
    leave: (packet) => named(packet, (each) => (isLast(each) ? { ...each, srqn: 0 } : each)),
  },
};
