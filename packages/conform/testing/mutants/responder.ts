/** Ways to break the responder of a reliable connection. */
import { bytesAt, checkAccess, ModelAccess, readU64 } from '@node-roce/sim';
import { Opcode, opcodeInfo, psnAdd } from '@node-roce/wire';
import { isRequest, type Mutant } from '../broken-device.ts';
import {
  ahead,
  answer,
  executing,
  isAck,
  isNak,
  isSendOrWrite,
  kindOf,
  NO_DATA,
  regionOf,
  request,
  rowOf,
  withRange,
} from './altering.ts';

/** Of the first queue pair of a bench. */
const FIRST_QPN = 0x40;

export const responderMutants: Readonly<Record<string, Mutant>> = {
  'reserved opcodes are dropped': {
    seenBy: ['OPC-01'],
    hear: (packet) => (opcodeInfo(packet.opcode) === undefined ? undefined : packet),
  },
  'a receive is taken with the last packet': {
    seenBy: ['RNR-04'],
    ...request(
      (p, { rc }) => p.opcode === Opcode.RC_SEND_FIRST && rc?.responder.receives.waiting.length === 0,
      () => undefined,
    ),
  },
  'an atomic of the second connection is lost': {
    seenBy: ['ATO-04'],
    ...request(
      (p, { pair }) => p.atomicEth !== undefined && pair.info.qpn > FIRST_QPN,
      (p) => ({ ...p, atomicEth: { ...p.atomicEth!, swapAdd: 0n } }),
    ),
  },
  'a queue pair that is not connected answers': {
    seenBy: ['STA-01'],
    arrive: (packet, { victims }) => {
      for (const { pair, inject } of victims) if (pair.state === 'RESET') inject({ psn: 0 });
      return packet;
    },
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
  'the ACK of a repeated WRITE acknowledges the READ behind it': {
    seenBy: ['DUP-13'],
    send: (p, { rc }) => (rc && isAck(p) ? [{ ...p, psn: psnAdd(rc.responder.ePsn, -1) }] : [p]),
    order: (a, b) => Number(isAck(b)) - Number(isAck(a)),
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
  'credits for receives that are not there': {
    seenBy: ['ACK-05'],
    ...answer(isAck, (p) => ({ ...p, aeth: { ...p.aeth!, syndrome: 5 } })),
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
