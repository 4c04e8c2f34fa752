/** The language of filters: on a table of its own, on packets and on connections of a capture, and on texts that it refuses. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { analyzeCapture } from '../node/analyze.ts';
import { readPackets } from '../node/read.ts';
import { connectionExpression, FILTER_FIELDS, packetExpression } from './fields.ts';
import { compileFilter, type Fields, FilterError } from './language.ts';

interface Item {
  n: number;
  both: number[];
  word: string;
  on: boolean;
}

const FIELDS: Fields<Item> = {
  n: { kind: 'number', of: ({ n }) => n },
  both: { kind: 'number', of: ({ both }) => both },
  word: { kind: 'text', of: ({ word }) => word },
  on: { kind: 'flag', of: ({ on }) => on },
};
const ITEM: Item = { n: 20, both: [1, 2], word: 'RDMA Read', on: true };

describe('the language', () => {
  test.each([
    ['n == 20', true],
    ['n = 0x14 and on', true],
    ['n != 20 or not on', false],
    ['!(n<20) && n>=20', true],
    ['n <= 19 || word contains read', true],
    ['word == "rdma read"', true],
    ['word != "rdma read"', false],
    ['both == 2', true],
    ['both != 2', false],
    ['both != 3', true],
    ['both > 1', true],
    // "and" binds more than "or".
    ['on or on and n == 1', true],
    ['(on or on) and n == 1', false],
    ['n == 20000ms', true],
    ['n < 1K', true],
    ['not not on', true],
  ])('%s: %s', (text, expected) => {
    expect(compileFilter(text, FIELDS)(ITEM)).toBe(expected);
  });

  test.each([
    ['', /expected a field \(n, both, word, on\), not, or \(; the expression ends there/, 0],
    ['m == 1', /expected a field .*; found "m"/, 0],
    ['n', /expected a comparison of n .*; the expression ends there/, 1],
    ['n == ', /expected a value; the expression ends there/, 5],
    ['n == x', /expected a number .*; found "x"/, 4],
    ['n contains 2', /a comparison of numbers/, 10],
    ['word < a', /==, != or contains/, 6],
    ['on == 1', /on is a flag/, 2],
    ['(on', /expected and, or, or \); the expression ends there/, 3],
    ['on on', /expected and, or, or the end; found "on"/, 2],
    ['on "', /can't be read from here: "/, 2],
    ['constructor == 1', /a field/, 0],
  ])('%j is refused, with the place', (text, message, position) => {
    expect(() => compileFilter(text, FIELDS)).toThrow(message);
    expect(() => compileFilter(text, FIELDS)).toThrow(expect.objectContaining({ position }));
  });

  test('any text is a filter or a FilterError, however deep', () => {
    const parts = fc.constantFrom(
      'n',
      'on',
      'and',
      'or',
      'not',
      '(',
      ')',
      '==',
      '<',
      '"a"',
      '12',
      '1.5ms',
      ' ',
      '"',
      '&&',
    );
    fc.assert(
      fc.property(fc.array(parts, { maxLength: 30 }), (words) => {
        try {
          expect(typeof compileFilter(words.join(' '), FIELDS)(ITEM)).toBe('boolean');
        } catch (error) {
          expect(error).toBeInstanceOf(FilterError);
        }
      }),
      { numRuns: 3000 },
    );
    expect(() => compileFilter('('.repeat(100_000), FIELDS)).toThrow(FilterError);
    expect(() => compileFilter('not '.repeat(100_000), FIELDS)).toThrow(FilterError);
  });
});

const captures = join(import.meta.dirname, '../../../../test/fixtures/captures');

async function framesOf(file: string, filter: string): Promise<number[]> {
  const frames: number[] = [];
  let isWanted: ReturnType<typeof packetExpression> | undefined;
  await readPackets(join(captures, file), {
    onPacket: (packet, { addresses }) => {
      isWanted ??= packetExpression(filter, addresses);
      if (isWanted(packet)) frames.push(packet.frame);
    },
  });
  return frames;
}

test('packets, by numbers that docs/capture-export.md shows', async () => {
  expect(await framesOf('op_all.pcap', 'frame >= 13 and frame <= 16 and opcode contains "write"')).toEqual([
    13, 14, 15,
  ]);
  expect(await framesOf('op_all.pcap', 'qp == 0x60 and psn == 1193056')).toEqual([16]);
  expect(
    await framesOf('op_all.pcap', 'src == 10.77.0.3 and dst == 10.0.0.0/8 and time > 16ms and time < 17ms'),
  ).toContain(16);
  expect(await framesOf('loss5_both_rc_pingpong.pcap', 'nak and not rnr')).toContain(29);
  expect(await framesOf('op_all.pcap', 'icrc != ok or sampled or ce')).toEqual([]);
});

test('connections', async () => {
  const { connections } = await analyzeCapture(join(captures, 'err_rnr_exhausted.pcap'));
  const count = (filter: string) => connections.filter(connectionExpression(filter)).length;
  expect(count('type == rc and retransmitted == 3 and rnr >= 4')).toBe(1);
  expect(count('qp == 0x71 and qp == 0x72')).toBe(1);
  expect(count('addr == 10.77.0.0/16 and a != 10.77.0.2')).toBe(0);
  expect(count('duration > 50ms and p99 < 1ms')).toBe(1);
});

test('docs/capture-export.md lists every field', () => {
  const text = readFileSync(join(import.meta.dirname, '../../../../docs/capture-export.md'), 'utf8');
  const section = text.slice(text.indexOf('## Filters'));
  for (const name of [...FILTER_FIELDS.packet, ...FILTER_FIELDS.connection])
    expect(section).toContain(`\`${name}\``);
});
