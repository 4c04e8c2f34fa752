import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import {
  Call,
  HEADER_BYTES,
  MAX_PAYLOAD,
  MAX_POLLED,
  Malformed,
  PROTOCOL_VERSION,
  Reader,
  Writer,
} from './protocol.ts';

test('the header in C has the same numbers', () => {
  const header = readFileSync(new URL('../../../native/ibverbs/protocol.h', import.meta.url), 'utf8');
  const calls = [...header.matchAll(/^ {2}ROCE_(\w+) = (\d+),$/gm)].map(([, name, value]) => [
    name,
    Number(value),
  ]);
  expect(Object.fromEntries(calls)).toEqual(Call);
  const define = (name: string) => new RegExp(`^#define ROCE_${name} (.*)$`, 'm').exec(header)?.[1];
  expect(define('PROTOCOL_VERSION')).toBe(`${PROTOCOL_VERSION}`);
  expect(define('MAX_PAYLOAD')).toBe('(1 << 20)');
  expect(MAX_PAYLOAD).toBe(1 << 20);
  expect(define('HEADER_BYTES')).toBe(`${HEADER_BYTES}`);
  expect(define('MAX_POLLED')).toBe(`${MAX_POLLED}`);
});

test('a reader gives what a writer wrote, whatever its length', () => {
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
