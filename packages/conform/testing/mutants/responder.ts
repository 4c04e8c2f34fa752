/** Ways to break the responder of a reliable connection. */
import { bytesAt, checkAccess, ModelAccess, type ModelPacket, type Responder, readU64 } from '@node-roce/sim';
import { Opcode, opcodeInfo, psnAdd, psnDiff } from '@node-roce/wire';
import { isRequest, type Mutant, type Victim } from '../broken-device.ts';

const rowOf = ({ opcode }: ModelPacket) => opcodeInfo(opcode)!;
const kindOf = ({ aeth }: ModelPacket): number => (aeth === undefined ? -1 : aeth.syndrome >> 5);
const isAck = (packet: ModelPacket): boolean =>
  packet.opcode === Opcode.RC_ACKNOWLEDGE && kindOf(packet) === 0;
const isNak = ({ aeth }: ModelPacket, syndrome: number): boolean => aeth?.syndrome === syndrome;
const NO_DATA = new Uint8Array(0);

/** How far a request is ahead of the one that is expected; below 0: it was executed before. */
function ahead(packet: ModelPacket, { rc }: Victim): number {
  return rc !== undefined && isRequest(packet) ? psnDiff(packet.psn, rc.responder.ePsn) : 0;
}

/** Executes requests out of their turn: the PSN is taken for the expected one, and put back afterwards. */
function executing(which: (packet: ModelPacket, victim: Victim) => boolean): Pick<Mutant, 'hear' | 'after'> {
  return {
    hear(packet, victim) {
      const { rc, notes } = victim;
      if (rc !== undefined && which(packet, victim)) {
        notes.ePsn = rc.responder.ePsn;
        rc.responder.ePsn = packet.psn;
      }
      return packet;
    },
    after({ rc, notes }) {
      if (rc === undefined || notes.ePsn === undefined) return;
      rc.responder.ePsn = notes.ePsn as number;
      notes.ePsn = undefined;
    },
  };
}

/** Changes the saved READs and atomics before a repetition is answered. */
function savedAs(
  change: (saved: Responder['saved'], packet: ModelPacket) => Responder['saved'],
): Mutant['hear'] {
  return (packet, { rc }) => {
    if (rc !== undefined && isRequest(packet)) rc.responder.saved = change(rc.responder.saved, packet);
    return packet;
  };
}

const savedRead = (saved: Responder['saved'], { psn }: ModelPacket) =>
  saved.find((s) => psnDiff(psn, s.firstPsn) >= 0 && psnDiff(psn, s.lastPsn) <= 0);

/** Answers are changed, those of requests that fit. */
const answer = (
  fits: (packet: ModelPacket) => boolean,
  change: (packet: ModelPacket) => ModelPacket | ModelPacket[],
) =>
  ({
    send: (packet) => (fits(packet) && !isRequest(packet) ? [change(packet)].flat() : [packet]),
  }) satisfies Pick<Mutant, 'send'>;

/** Requests are changed before they are looked at. */
const request = (
  fits: (packet: ModelPacket, victim: Victim) => boolean,
  change: (packet: ModelPacket, victim: Victim) => ModelPacket | undefined,
) =>
  ({
    hear: (packet, victim) =>
      victim.rc !== undefined && isRequest(packet) && fits(packet, victim) ? change(packet, victim) : packet,
  }) satisfies Pick<Mutant, 'hear'>;

/** The region that a request means: the one of its key, or any. */
function regionOf({ reth, atomicEth }: ModelPacket, { rc }: Victim) {
  const key = (reth ?? atomicEth)?.rkey;
  const { regions } = rc!.responder.memory;
  return regions.find(({ rkey }) => rkey === key) ?? regions.at(-1)!;
}

/** Address and key of a request. */
function withRange(packet: ModelPacket, range: { va?: bigint; rkey?: number; length?: number }): ModelPacket {
  if (packet.atomicEth) return { ...packet, atomicEth: { ...packet.atomicEth, ...range } };
  return packet.reth ? { ...packet, reth: { ...packet.reth, ...range } } : packet;
}

const isSendOrWrite = (packet: ModelPacket) => rowOf(packet).isSend || rowOf(packet).isWrite;

export const responderMutants: Readonly<Record<string, Mutant>> = {
  'reserved opcodes are dropped': {
    seenBy: ['OPC-01'],
    hear: (packet) => (opcodeInfo(packet.opcode) === undefined ? undefined : packet),
  },
  'NAK of every packet ahead': {
    seenBy: ['PSN-01'],
    hear: (packet, { rc }) => {
      if (rc !== undefined) rc.responder.nakOutstanding = false;
      return packet;
    },
  },
  'every NAK twice': {
    seenBy: ['PSN-01'],
    ...answer(
      (p) => kindOf(p) === 3,
      (p) => [p, p],
    ),
  },
  'no sequence NAK': {
    seenBy: ['PSN-01'],
    ...answer(
      (p) => isNak(p, 0x60),
      () => [],
    ),
  },
  'sequence NAK with the PSN before the missing one': {
    seenBy: ['PSN-01'],
    ...answer(
      (p) => isNak(p, 0x60),
      (p) => ({ ...p, psn: psnAdd(p.psn, -1) }),
    ),
  },
  'sequence NAK with the PSN that came': {
    seenBy: ['PSN-01', 'PSN-07'],
    send: (p, { input }) => (isNak(p, 0x60) && input ? [{ ...p, psn: input.psn }] : [p]),
  },
  'one sequence NAK in a life': {
    seenBy: ['PSN-02'],
    send: (p, { notes }) => {
      if (!isNak(p, 0x60)) return [p];
      const again = notes.nakked === true;
      notes.nakked = true;
      return again ? [] : [p];
    },
  },
  'WRITE executed ahead of its turn': {
    seenBy: ['PSN-03'],
    hear: (packet, victim) => {
      const { reth, payload } = packet;
      if (ahead(packet, victim) > 0 && reth) {
        bytesAt(victim.rc!.responder.memory, reth.rkey, reth.va, reth.length).set(payload);
      }
      return packet;
    },
  },
  'no answer to repetitions while a NAK is out': {
    seenBy: ['PSN-04'],
    ...request(
      (p, v) => ahead(p, v) < 0 && v.rc!.responder.nakOutstanding,
      () => undefined,
    ),
  },
  'PSNs of 23 bits': {
    seenBy: ['PSN-05', 'PSN-11'],
    send: (p) => [{ ...p, psn: p.psn & 0x7f_ffff }],
  },
  'more than 2^22 behind is ahead': {
    seenBy: ['PSN-06'],
    ...request(
      (p, v) => ahead(p, v) < -(2 ** 22),
      (p, v) => ({ ...p, psn: psnAdd(v.rc!.responder.ePsn, 5) }),
    ),
  },
  'a gap before a READ is not seen': {
    seenBy: ['PSN-07'],
    ...request(
      (p, v) => ahead(p, v) > 0 && rowOf(p).isReadRequest,
      () => undefined,
    ),
  },
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
  'deregistered memory stays open': { seenBy: ['DUP-14', 'KEY-16'], keepsRegions: true },
  'compare and swap always swaps': {
    seenBy: ['ATO-02'],
    ...request(
      (p) => p.opcode === Opcode.RC_COMPARE_SWAP,
      (p, v) => {
        const { rkey, va } = p.atomicEth!;
        return {
          ...p,
          atomicEth: { ...p.atomicEth!, compare: readU64(bytesAt(v.rc!.responder.memory, rkey, va, 8)) },
        };
      },
    ),
  },
  'misaligned atomics executed': {
    seenBy: ['ATO-03'],
    ...request(
      (p) => p.atomicEth !== undefined,
      (p) => withRange(p, { va: p.atomicEth!.va & ~7n }),
    ),
  },
  'fetch and add stops at the largest value': {
    seenBy: ['ATO-05'],
    ...request(
      (p) => p.opcode === Opcode.RC_FETCH_ADD,
      (p, v) => {
        const { rkey, va, swapAdd } = p.atomicEth!;
        const room = 2n ** 64n - 1n - readU64(bytesAt(v.rc!.responder.memory, rkey, va, 8));
        return { ...p, atomicEth: { ...p.atomicEth!, swapAdd: swapAdd > room ? room : swapAdd } };
      },
    ),
  },
  'a range outside is moved into the region': {
    seenBy: ['KEY-02', 'KEY-03', 'KEY-04', 'KEY-05', 'ATO-06', 'LEN-13'],
    ...request(
      (p) => p.reth !== undefined || p.atomicEth !== undefined,
      (p, v) => {
        const { base, bytes } = regionOf(p, v);
        const length = Math.min(p.reth?.length ?? 8, bytes.length);
        const last = base + BigInt(bytes.length - length);
        const va = (p.reth ?? p.atomicEth)!.va;
        const inside = va < base || va > last ? last : va;
        return withRange(p, p.reth ? { va: inside, length } : { va: inside });
      },
    ),
  },
  'the first packet is written before its range is checked': {
    seenBy: ['KEY-05'],
    hear: (packet, victim) => {
      const { reth, payload } = packet;
      const memory = victim.rc?.responder.memory;
      if (
        memory &&
        reth &&
        checkAccess(memory, reth.rkey, reth.va, payload.length, ModelAccess.REMOTE_WRITE, 0) === undefined
      ) {
        bytesAt(memory, reth.rkey, reth.va, payload.length).set(payload);
      }
      return packet;
    },
  },
  'any key opens the region': {
    seenBy: ['KEY-01'],
    ...request(
      (p) => (p.reth?.length ?? 0) > 0,
      (p, v) => withRange(p, { rkey: regionOf(p, v).rkey }),
    ),
  },
  'remote access NAK is an invalid request NAK': {
    seenBy: ['KEY-01'],
    ...answer(
      (p) => isNak(p, 0x62),
      (p) => ({ ...p, aeth: { ...p.aeth!, syndrome: 0x61 } }),
    ),
  },
  'a fault does not end the connection': {
    seenBy: ['KEY-01', 'LEN-01', 'LEN-02', 'LEN-04', 'SEQ-01', 'SEQ-02', 'SEQ-05', 'ACC-01', 'ATO-03'],
    after: ({ rc }) => {
      if (rc === undefined) return;
      rc.responder.state = 'READY';
      rc.requester.state = 'READY';
    },
  },
  'regions give every right': {
    seenBy: ['KEY-06', 'KEY-07', 'KEY-08', 'FUZ-01'],
    access: () => 0x0f,
  },
  'PSNs not checked': { seenBy: ['PSN-01', 'DUP-01'], without: 'checkPsn' },
  'order of opcodes not checked': { seenBy: ['SEQ-01'], without: 'checkOpcodeSequence' },
  'rights of the queue pair not checked': {
    seenBy: ['ACC-01', 'ACC-02', 'ACC-03'],
    without: 'checkOperationAllowed',
  },
  'READs served that were not agreed on': {
    seenBy: ['ACC-04'],
    attributes: ({ maxDestRdAtomic }) => ({ maxDestRdAtomic: Math.max(1, maxDestRdAtomic) }),
  },
  'MSN stays 0': {
    seenBy: ['MSN-01'],
    ...answer(
      (p) => p.aeth !== undefined,
      (p) => ({ ...p, aeth: { ...p.aeth!, msn: 0 } }),
    ),
  },
  'MSN counts packets': {
    seenBy: ['MSN-01'],
    after: ({ rc, input }) => {
      if (rc && input && isRequest(input) && !rowOf(input).last)
        rc.responder.msn = psnAdd(rc.responder.msn, 1);
    },
  },
  'AckReq in mid-message not heard': {
    seenBy: ['ACK-01'],
    send: (p, { input }) => (isAck(p) && input && isRequest(input) && !rowOf(input).last ? [] : [p]),
  },
  'every second ACK left out': {
    seenBy: ['ACK-02'],
    send: (p, { notes }) => {
      if (!isAck(p)) return [p];
      notes.acks = ((notes.acks as number | undefined) ?? 0) + 1;
      return (notes.acks as number) % 2 === 0 ? [] : [p];
    },
  },
  'ACKs before READ responses': {
    seenBy: ['ACK-03'],
    order: (a, b) => Number(b.opcode === Opcode.RC_ACKNOWLEDGE) - Number(a.opcode === Opcode.RC_ACKNOWLEDGE),
  },
  'RNR NAK with timer 0': {
    seenBy: ['RNR-01', 'RNR-06'],
    ...answer(
      (p) => kindOf(p) === 1,
      (p) => ({ ...p, aeth: { ...p.aeth!, syndrome: 0x20 } }),
    ),
  },
  'timer codes of four bits': {
    seenBy: ['RNR-06'],
    ...answer(
      (p) => kindOf(p) === 1,
      (p) => ({ ...p, aeth: { ...p.aeth!, syndrome: p.aeth!.syndrome & 0x2f } }),
    ),
  },
  'sequence NAK behind an RNR NAK': {
    seenBy: ['RNR-02'],
    hear: (packet, victim) => {
      const { rc, notes } = victim;
      if (rc && ahead(packet, victim) > 0 && notes.behind !== true) {
        notes.behind = true;
        rc.responder.nakOutstanding = false;
      }
      return packet;
    },
  },
  'WRITE with immediate without a receive is a WRITE': {
    seenBy: ['RNR-03'],
    ...request(
      (p, v) =>
        p.opcode === Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE &&
        v.rc!.responder.receives.waiting.length === 0,
      ({ immediate: _, ...p }) => ({ ...p, opcode: Opcode.RC_RDMA_WRITE_ONLY }),
    ),
  },
  'a request behind an RNR NAK executed': {
    seenBy: ['RNR-07'],
    ...executing((p, v) => ahead(p, v) > 0 && v.rc!.responder.nakOutstanding),
  },
  'a SEND MIDDLE without FIRST is one': {
    seenBy: ['SEQ-01'],
    ...request(
      (p, v) => p.opcode === Opcode.RC_SEND_MIDDLE && v.rc!.responder.inProgress === undefined,
      (p) => ({ ...p, opcode: Opcode.RC_SEND_FIRST }),
    ),
  },
  'MIDDLE and LAST without FIRST dropped': {
    seenBy: ['SEQ-01', 'SEQ-02'],
    ...request(
      (p, v) => !rowOf(p).first && v.rc!.responder.inProgress === undefined,
      () => undefined,
    ),
  },
  'a message inside another taken': {
    seenBy: ['SEQ-03', 'SEQ-05', 'SEQ-08'],
    hear: (packet, { rc }) => {
      if (rc && isRequest(packet) && rowOf(packet).first) rc.responder.inProgress = undefined;
      return packet;
    },
  },
  'SEND and WRITE continue each other': {
    seenBy: ['SEQ-04', 'SEQ-06'],
    ...request(
      (p, v) => isSendOrWrite(p) && !rowOf(p).first && v.rc!.responder.inProgress !== undefined,
      (p, v) => {
        const kind = v.rc!.responder.inProgress!.kind === 'SEND' ? 'SEND' : 'RDMA_WRITE';
        return { ...p, opcode: Opcode[`RC_${kind}_${rowOf(p).last ? 'LAST' : 'MIDDLE'}`] };
      },
    ),
  },
  'receives flushed in the wrong order': {
    seenBy: ['SEQ-07'],
    after: ({ rc, notes }) => {
      if (rc?.state !== 'ERR' || notes.reversed) return;
      notes.reversed = true;
      rc.receiveCompletions.reverse();
    },
  },
  'opcodes of UC and UD taken': {
    seenBy: ['OPC-02'],
    hear: (packet, { rc }) => (rc ? { ...packet, opcode: packet.opcode & 0x1f } : packet),
  },
  'the service of an opcode not looked at': {
    seenBy: ['OPC-03'],
    arrive: (packet) => {
      const bytes = packet.bytes.slice();
      if (bytes[0] >= 0x40 && bytes[0] < 0x60) bytes[0] &= 0x1f;
      return { ...packet, bytes };
    },
  },
  'a reserved opcode taken for a WRITE': {
    seenBy: ['OPC-05'],
    arrive: (packet) => {
      const bytes = packet.bytes.slice();
      if (bytes[0] === 0x1a) bytes[0] = 0x0a;
      return { ...packet, bytes };
    },
  },
  'lengths not checked': {
    seenBy: [
      'LEN-01',
      'LEN-02',
      'LEN-03',
      'LEN-04',
      'LEN-05',
      'LEN-06',
      'LEN-07',
      'LEN-08',
      'LEN-09',
      'LEN-17',
    ],
    without: 'checkLength',
  },
  'a payload of a READ request ignored': {
    seenBy: ['LEN-14'],
    ...request(
      (p) => rowOf(p).isReadRequest,
      (p) => ({ ...p, payload: NO_DATA }),
    ),
  },
  'operational NAK for a receive that is too small': {
    seenBy: ['LEN-10', 'LEN-16'],
    ...answer(
      (p) => isNak(p, 0x61),
      (p) => ({ ...p, aeth: { ...p.aeth!, syndrome: 0x63 } }),
    ),
  },
  'the message is cut to the receive': {
    seenBy: ['LEN-10'],
    ...request(
      (p) => p.opcode === Opcode.RC_SEND_ONLY,
      (p, v) => ({ ...p, payload: p.payload.slice(0, v.rc!.responder.receives.waiting[0]?.local.length) }),
    ),
  },
  'a SEND of 0 bytes dropped': {
    seenBy: ['LEN-11'],
    ...request(
      (p) => rowOf(p).isSend && p.payload.length === 0,
      () => undefined,
    ),
  },
  'a range of 0 bytes needs a key': {
    seenBy: ['LEN-12'],
    ...request(
      (p) => rowOf(p).isReadRequest && p.reth?.length === 0,
      (p) => withRange(p, { length: 1 }),
    ),
  },
  'path MTU 4096 is 2048': {
    seenBy: ['LEN-15'],
    attributes: ({ pathMtu }) => ({ pathMtu: Math.min(2048, pathMtu) }),
  },
  'a destroyed queue pair lives': { seenBy: ['STA-04'], keepsQueuePairs: true },
  'the error state answers': { seenBy: ['STA-05'], without: 'checkState' },
  'answers responses': {
    seenBy: ['ROB-04'],
    hear: (packet, { inject, rc }) => {
      if (rc && !isRequest(packet)) inject({ psn: packet.psn });
      return packet;
    },
  },
  'an unasked NAK ends the connection': {
    seenBy: ['ROB-04'],
    hear: (packet, { pair }) => {
      if (isNak(packet, 0x61) || isNak(packet, 0x63)) pair.fail();
      return packet;
    },
  },
  'top bit of the syndrome': {
    seenBy: ['RSP-01'],
    ...answer(
      (p) => p.aeth !== undefined,
      (p) => ({ ...p, aeth: { ...p.aeth!, syndrome: p.aeth!.syndrome | 0x80 } }),
    ),
  },
  'P_Key 1 in answers': {
    seenBy: ['RSP-01'],
    ...answer(
      () => true,
      (p) => ({ ...p, pkey: 1 }),
    ),
  },
  'AckReq on answers': {
    seenBy: ['RSP-01'],
    ...answer(
      () => true,
      (p) => ({ ...p, ackReq: true }),
    ),
  },
};
