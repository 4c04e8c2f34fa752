import { expect, test } from 'vitest';
import { fromHex } from './bytes.ts';
import { buildPfc, describePause, PauseOpcode, PauseValue, readPause } from './pause.ts';

/** As tcpdump and tshark print it: PFC, priority 3 for 65535 quanta, priority 4 resumes. */
const PFC = fromHex(
  '0180c2000001 020000000001 8808 0101 0018 0000 0000 0000 ffff 0000 0000 0000 0000'.replaceAll(' ', ''),
);

test('PFC: priorities and quanta', () => {
  const value = new PauseValue();
  expect(readPause(PFC, 14, PFC.length, value)).toBe(true);
  expect(value).toMatchObject({ opcode: PauseOpcode.PFC, enabled: 0x18 });
  expect([...value.quanta]).toEqual([0, 0, 0, 0xffff, 0, 0, 0, 0]);
  expect(describePause(value)).toBe('PFC priority 3 65535 quanta, priority 4 resumes');
});

test('buildPfc makes the same bytes, padded to the least frame', () => {
  const frame = buildPfc(fromHex('020000000001'), { 3: 0xffff, 4: 0 });
  expect(frame.length).toBe(60);
  expect(frame.subarray(0, PFC.length)).toEqual(PFC);
  expect(() => buildPfc(new Uint8Array(6), { 8: 1 })).toThrow(RangeError);
  expect(() => buildPfc(new Uint8Array(6), { 1: 65_536 })).toThrow(RangeError);
});

test('PAUSE stops all priorities', () => {
  const value = new PauseValue();
  expect(readPause(fromHex('0001000a'), 0, 4, value)).toBe(true);
  expect(value).toMatchObject({ opcode: PauseOpcode.PAUSE, enabled: 0xff });
  expect(describePause(value)).toBe('PAUSE 10 quanta');
});

test('refuses other MAC control frames, and cut ones', () => {
  const value = new PauseValue();
  expect(readPause(fromHex('0002000a'), 0, 4, value)).toBe(false);
  for (let end = 14; end < 34; end++) expect(readPause(PFC, 14, end, value)).toBe(false);
});
