import { type FrameRule, passesRule } from '@node-roce/transport';
import { describe, expect, test } from 'vitest';
import { frameFilter } from './frame-filter.ts';

/** Runs a program as the kernel does (Documentation/networking/filter.rst): whether the frame passes. */
function passes(program: Uint32Array, frame: Uint8Array): boolean {
  let a = 0;
  for (let at = 0; ; at += 2) {
    const code = program[at] & 0xffff;
    const k = program[at + 1];
    const width = { 32: 4, 40: 2, 48: 1 }[code];
    if (width !== undefined) {
      // A load beyond the end of the frame ends the program: nothing passes.
      if (k + width > frame.length) return false;
      a = frame.subarray(k, k + width).reduce((sum, byte) => sum * 256 + byte, 0);
    } else if (code === 0x54) a = (a & k) >>> 0;
    else if (code === 0x15) at += 2 * (a === k ? (program[at] >>> 16) & 0xff : program[at] >>> 24);
    else if (code === 0x06) return k > 0;
    else throw new Error(`instruction ${code}`);
  }
}

const bytes = (...list: number[]) => Uint8Array.from(list);
const frame = (type: number[], ...rest: number[]) =>
  bytes(2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, ...type, ...rest);

describe('rules', () => {
  const arp: FrameRule = [{ offset: 12, value: bytes(8, 6) }];
  const toUs: FrameRule = [{ offset: 0, value: bytes(2, 0, 0, 0, 0, 2) }];

  test.each<[string, FrameRule[], boolean[]]>([
    ['none: nothing passes', [], [false, false]],
    ['an empty one: all pass', [[]], [true, true]],
    ['an EtherType', [arp], [true, false]],
    ['an address', [toUs], [true, true]],
    ['two matches of one rule both hold', [[...arp, ...toUs]], [true, false]],
    ['another address', [[{ offset: 0, value: bytes(2, 0, 0, 0, 0, 3) }]], [false, false]],
    ['one of two rules holds', [[{ offset: 5, value: bytes(9) }], arp], [true, false]],
    [
      'bits under a mask',
      [[{ offset: 12, value: bytes(0xff, 0x06), mask: bytes(0x08, 0xff) }]],
      [true, false],
    ],
    ['a mask of zeros matches all', [[{ offset: 12, value: bytes(1), mask: bytes(0) }]], [true, true]],
    ['beyond the end', [[{ offset: 14, value: bytes(1, 2, 3) }]], [true, false]],
  ])('%s', (_, rules, expected) => {
    const program = frameFilter(rules);
    const frames = [frame([8, 6], 1, 2, 3), frame([8, 0], 1)];
    expect(frames.map((each) => passes(program, each))).toEqual(expected);
    // Counting by rules, which the kernel does not do, agrees with it.
    const isCounted = (each: Uint8Array) => rules.some((rule) => passesRule(rule, each, 0, each.length));
    expect(frames.map(isCounted)).toEqual(expected);
  });
});

test.each<[string, FrameRule[], string]>([
  ['an offset below 0', [[{ offset: -1, value: bytes(1) }]], 'filter[0][0].offset'],
  ['no value', [[{ offset: 0, value: bytes() }]], 'filter[0][0].value'],
  [
    'a mask of another length',
    [[], [{ offset: 0, value: bytes(1, 2), mask: bytes(1) }]],
    'filter[1][0].mask',
  ],
  ['more bytes than a jump goes over', [[{ offset: 0, value: new Uint8Array(600) }]], 'filter[0]'],
  [
    'more than the kernel takes',
    Array.from({ length: 2000 }, () => [{ offset: 0, value: bytes(1) }]),
    'filter',
  ],
])('%s is refused', (_, rules, attribute) => {
  expect(() => frameFilter(rules)).toThrow(expect.objectContaining({ errno: 'EINVAL', attribute }));
});
