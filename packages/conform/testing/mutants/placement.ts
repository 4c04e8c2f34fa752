/** Ways to break FLUSH and ATOMIC WRITE. */
import { ModelAccess, type ModelPacket } from '@node-roce/sim';
import { Opcode } from '@node-roce/wire';
import { isRequest, type Mutant, type Victim } from '../broken-device.ts';
import { ahead, executing, NO_DATA, regionOf, request, rowOf, withRange } from './altering.ts';

const isFlush = (packet: ModelPacket): boolean => rowOf(packet).isFlush;
const isAtomicWrite = (packet: ModelPacket): boolean => rowOf(packet).isAtomicWrite;
const { FLUSH_GLOBAL } = ModelAccess;

/** Answers to requests that fit leave changed. */
const answersTo = (
  fits: (packet: ModelPacket) => boolean,
  change: (packet: ModelPacket) => ModelPacket[],
): Pick<Mutant, 'send'> => ({
  send: (packet, { input }) =>
    input !== undefined && fits(input) && !isRequest(packet) ? change(packet) : [packet],
});

const asAck = (packet: ModelPacket): ModelPacket[] => [
  { ...packet, opcode: Opcode.RC_ACKNOWLEDGE, payload: NO_DATA },
];
const isAgain = (packet: ModelPacket, victim: Victim): boolean => ahead(packet, victim) < 0;

export const placementMutants: Readonly<Record<string, Mutant>> = {
  'a FLUSH is not answered': { seenBy: ['PLC-01'], ...answersTo(isFlush, () => []) },
  'a FLUSH is acknowledged': { seenBy: ['PLC-01'], ...answersTo(isFlush, asAck) },
  'a FLUSH is answered with a byte': {
    seenBy: ['PLC-01'],
    ...answersTo(isFlush, (packet) => [{ ...packet, payload: new Uint8Array(1) }]),
  },
  'the key of a FLUSH of no bytes is not looked at': {
    seenBy: ['PLC-03'],
    ...request(
      (p) => isFlush(p) && p.reth?.length === 0,
      (p, v) => withRange(p, { rkey: regionOf(p, v).rkey }),
    ),
  },
  'the key of a FLUSH is not looked at': {
    seenBy: ['PLC-03'],
    ...request(
      (p) => isFlush(p) && p.reth?.length !== 0,
      (p, v) => withRange(p, { rkey: regionOf(p, v).rkey }),
    ),
  },
  'each region may be flushed': { seenBy: ['PLC-03'], access: (bits) => bits | FLUSH_GLOBAL },
  'each queue pair takes a FLUSH': {
    seenBy: ['PLC-03'],
    attributes: ({ qpAccessFlags = 0 }) => ({ qpAccessFlags: qpAccessFlags | FLUSH_GLOBAL }),
  },
  'a repeated FLUSH is dropped': {
    seenBy: ['PLC-08'],
    ...request(
      (p, v) => isFlush(p) && isAgain(p, v),
      () => undefined,
    ),
  },
  'an ATOMIC WRITE is acknowledged': {
    seenBy: ['PLC-04', 'PLC-07'],
    ...answersTo(isAtomicWrite, asAck),
  },
  'an ATOMIC WRITE stores something else': {
    seenBy: ['PLC-07'],
    ...request(isAtomicWrite, (p) => ({ ...p, payload: p.payload.map((byte) => byte ^ 1) })),
  },
  'a misaligned ATOMIC WRITE is executed': {
    seenBy: ['PLC-02'],
    ...request(
      (p) => isAtomicWrite(p) && p.reth!.va % 8n !== 0n,
      (p) => withRange(p, { va: p.reth!.va & ~7n }),
    ),
  },
  'an ATOMIC WRITE of any length is executed': {
    seenBy: ['PLC-02'],
    ...request(
      (p) => isAtomicWrite(p) && (p.reth!.length !== 8 || p.payload.length !== 8),
      (p) => ({ ...withRange(p, { length: 8 }), payload: new Uint8Array(8) }),
    ),
  },
  'a repeated ATOMIC WRITE is dropped': {
    seenBy: ['PLC-04'],
    ...request(
      (p, v) => isAtomicWrite(p) && isAgain(p, v),
      () => undefined,
    ),
  },
  'a repeated ATOMIC WRITE is executed': {
    seenBy: ['PLC-04'],
    ...executing((p, v) => isAtomicWrite(p) && isAgain(p, v)),
  },
  'room for READs, atomics and ATOMIC WRITEs is not counted': {
    seenBy: ['PLC-05'],
    attributes: () => ({ maxDestRdAtomic: 4 }),
  },
};
