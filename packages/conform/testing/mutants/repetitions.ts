/** Ways to break how a responder answers repetitions. */
import type { ModelPacket } from '@node-roce/sim';
import { Opcode, psnDiff } from '@node-roce/wire';
import type { Mutant, Victim } from '../broken-device.ts';
import { ahead, executing, isAck, request, rowOf, savedAs, savedRead } from './altering.ts';

/** Does something else for a repeated READ that is not remembered. */
const forgotten =
  (instead: (victim: Victim, packet: ModelPacket) => void): Mutant['hear'] =>
  (packet, victim) => {
    const { rc } = victim;
    if (rc === undefined || !rowOf(packet).isReadRequest || ahead(packet, victim) >= 0) return packet;
    if (savedRead(rc.responder.saved, packet) !== undefined) return packet;
    instead(victim, packet);
    return undefined;
  };

export const repetitionMutants: Readonly<Record<string, Mutant>> = {
  'repetitions in silence': {
    seenBy: ['DUP-01', 'DUP-02', 'DUP-04', 'ATO-01'],
    ...request(
      (p, v) => ahead(p, v) < 0,
      () => undefined,
    ),
  },
  'repeated SEND executed': {
    seenBy: ['DUP-01'],
    ...executing((p, v) => ahead(p, v) < 0 && rowOf(p).isSend),
  },
  'repeated WRITE executed': {
    seenBy: ['DUP-02', 'DUP-11'],
    ...executing((p, v) => ahead(p, v) < 0 && rowOf(p).isWrite),
  },
  'repeated atomic executed': {
    seenBy: ['ATO-01'],
    ...executing((p, v) => ahead(p, v) < 0 && rowOf(p).isAtomic),
  },
  'forgotten atomic executed': {
    seenBy: ['DUP-10'],
    ...executing((p, v) => ahead(p, v) < 0 && rowOf(p).isAtomic && !savedRead(v.rc!.responder.saved, p)),
  },
  'a forgotten READ is acknowledged': {
    seenBy: ['DUP-09'],
    hear: forgotten((victim) => {
      victim.inject({ psn: victim.rc!.responder.ePsn - 1 });
    }),
  },
  'a forgotten READ ends the connection': {
    seenBy: ['DUP-09'],
    hear: forgotten((victim) => victim.pair.fail()),
  },
  'a forgotten READ is answered from the beginning of the region': {
    seenBy: ['DUP-09'],
    hear: forgotten((victim, packet) => {
      const aeth = { syndrome: 0x1f, msn: 0 };
      const opcode = Opcode.RC_RDMA_READ_RESPONSE_ONLY;
      victim.inject({ opcode, psn: packet.psn, aeth, payload: new Uint8Array(64) });
    }),
  },
  'repetition acknowledged with its own PSN': {
    seenBy: ['DUP-02'],
    send: (p, { input, rc }) =>
      isAck(p) && rc && input && psnDiff(input.psn, rc.responder.ePsn) < -1
        ? [{ ...p, psn: input.psn }]
        : [p],
  },
  'a repetition ends the message in progress': {
    seenBy: ['DUP-03'],
    hear: (packet, victim) => {
      if (ahead(packet, victim) < 0) victim.rc!.responder.inProgress = undefined;
      return packet;
    },
  },
  'a repeated FIRST begins the message anew': {
    seenBy: ['DUP-12'],
    hear: (packet, victim) => {
      const { inProgress } = victim.rc?.responder ?? {};
      if (ahead(packet, victim) < 0 && inProgress && rowOf(packet).first) inProgress.received = 0;
      return packet;
    },
  },
  'READs forgotten': {
    seenBy: ['DUP-04', 'DUP-05'],
    hear: savedAs((saved) => saved.filter((s) => s.original !== undefined)),
  },
  'atomics forgotten': {
    seenBy: ['ATO-01'],
    hear: savedAs((saved) => saved.filter((s) => s.original === undefined)),
  },
  'a READ resumed with MIDDLE': {
    seenBy: ['DUP-05'],
    send: (p, { input, rc }) => {
      const isResumed = input && rc?.responder.saved.every(({ firstPsn }) => firstPsn !== input.psn);
      if (!isResumed || p.opcode !== Opcode.RC_RDMA_READ_RESPONSE_FIRST) return [p];
      const { aeth: _, ...rest } = p;
      return [{ ...rest, opcode: Opcode.RC_RDMA_READ_RESPONSE_MIDDLE }];
    },
  },
  'a partial repetition replaces the READ': {
    seenBy: ['DUP-06'],
    after: ({ rc, input }) => {
      const saved = rc && input && rowOf(input).isReadRequest && savedRead(rc.responder.saved, input);
      if (saved) Object.assign(saved, { firstPsn: input.psn, request: input });
    },
  },
  'length of a repeated READ not compared': {
    seenBy: ['DUP-07'],
    hear: savedAs((saved, packet) => {
      const read = packet.reth && savedRead(saved, packet);
      if (read?.request.reth) read.request.reth.length = 65_536;
      return saved;
    }),
  },
  'address of a repeated READ not compared': {
    seenBy: ['DUP-08'],
    hear: savedAs((saved, packet) => {
      const read = packet.reth && savedRead(saved, packet);
      if (read?.request.reth?.rkey === packet.reth?.rkey && read?.request.reth)
        read.request.reth.va = packet.reth!.va;
      return saved;
    }),
  },
  'deregistered memory stays open': { seenBy: ['DUP-14', 'KEY-16', 'RD-12'], keepsRegions: true },
};
