import { readFileSync } from 'node:fs';
import {
  BellControl,
  CONTROL_WORDS,
  Control,
  CQE_WORDS,
  Cqe,
  RecvWqe,
  SendWqe,
  SGE_WORDS,
  Sge,
  STAMPED_CQE_WORDS,
  TAGGED_CQE_WORDS,
  WaitingThreads,
} from '@node-roce/transport';
import { expect, test } from 'vitest';
import {
  Call,
  CqBits,
  HEADER_BYTES,
  MAX_PAYLOAD,
  Malformed,
  PROTOCOL_VERSION,
  Reader,
  Writer,
} from './protocol.ts';

test('the header in C has the same numbers', () => {
  const header = readFileSync(new URL('../../../native/ibverbs/protocol.h', import.meta.url), 'utf8');
  const enumeration = (name: string, prefix: string) => {
    const [, body] = new RegExp(`^enum ${name} \\{(.*?)^\\};`, 'ms').exec(header) ?? [];
    const rows = [...(body ?? '').matchAll(/^ {2}ROCE_(\w+) = (\d+),$/gm)];
    return Object.fromEntries(rows.map(([, key, value]) => [key.slice(prefix.length), Number(value)]));
  };
  expect(enumeration('roce_call', '')).toEqual(Call);
  const words = [
    [enumeration('roce_control', 'CONTROL_'), { ...Control, ...BellControl }],
    [enumeration('roce_send_wqe', 'SEND_'), SendWqe],
    [enumeration('roce_recv_wqe', 'RECV_'), RecvWqe],
    [enumeration('roce_sge', 'SGE_'), Sge],
    [enumeration('roce_cqe', 'CQE_'), Cqe],
  ];
  expect(enumeration('roce_cq_bits', 'CQ_')).toEqual(CqBits);
  expect(enumeration('roce_waiting', 'WAITING_')).toEqual(WaitingThreads);
  for (const [inC, ours] of words) {
    expect(Object.keys(inC).length).toBeGreaterThan(3);
    expect(ours).toMatchObject(inC);
  }
  const define = (name: string) => new RegExp(`^#define ROCE_${name} (.*)$`, 'm').exec(header)?.[1];
  expect(define('PROTOCOL_VERSION')).toBe(`${PROTOCOL_VERSION}`);
  expect(define('MAX_PAYLOAD')).toBe('(1 << 20)');
  expect(MAX_PAYLOAD).toBe(1 << 20);
  expect(define('HEADER_BYTES')).toBe(`${HEADER_BYTES}`);
  expect(define('CONTROL_WORDS')).toBe(`${CONTROL_WORDS}`);
  expect(define('SGE_WORDS')).toBe(`${SGE_WORDS}`);
  expect(define('CQE_WORDS')).toBe(`${CQE_WORDS}`);
  expect(define('STAMPED_CQE_WORDS')).toBe(`${STAMPED_CQE_WORDS}`);
  expect(define('TAGGED_CQE_WORDS')).toBe(`${TAGGED_CQE_WORDS}`);
});

test('a reader returns the values that a writer wrote, whatever their length', () => {
  const writer = new Writer();
  for (let i = 0; i < 1000; i++) writer.u32(i).u64(BigInt(i) << 40n);
  const message = writer.bytes(Uint8Array.of(1, 2, 3)).finish(22);
  expect(message.readUInt32LE(0)).toBe(12_003);
  expect(message.readUInt32LE(4)).toBe(22);
  const reader = new Reader(message.subarray(HEADER_BYTES));
  for (let i = 0; i < 1000; i++) {
    expect(reader.u32()).toBe(i);
    expect(reader.u64()).toBe(BigInt(i) << 40n);
  }
  expect([...reader.bytes(3)]).toEqual([1, 2, 3]);
  reader.end();
});

test('rejects a payload that is too short or too long', () => {
  expect(() => new Reader(Buffer.alloc(3)).u32()).toThrow(Malformed);
  expect(() => new Reader(Buffer.alloc(7)).u64()).toThrow(Malformed);
  expect(() => new Reader(Buffer.alloc(7)).bytes(8)).toThrow(Malformed);
  expect(() => new Reader(Buffer.alloc(7)).bytes(0xffff_ffff)).toThrow(Malformed);
  expect(() => new Reader(Buffer.alloc(1)).end()).toThrow(Malformed);
});

test('bytes are copied', () => {
  const from = Buffer.from([1, 2, 3, 4]);
  const bytes = new Reader(from).bytes(4);
  from.fill(9);
  expect([...bytes]).toEqual([1, 2, 3, 4]);
});
