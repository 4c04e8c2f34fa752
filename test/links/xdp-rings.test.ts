/** Rings that no kernel would write (test/links/xdp/rings.cc), under AddressSanitizer. Needs root, iproute2 and a compiler. */
// @module-tag slow
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { makeCable } from './xdp/cable.ts';

const cable = makeCable('roce-xdp-rings');
const native = join(import.meta.dirname, '../../native');
const folder = mkdtempSync(join(tmpdir(), 'xdp-rings-'));
afterAll(() => {
  rmSync(folder, { recursive: true });
  cable?.[Symbol.dispose]();
});

const SOURCES = [
  'xdp_socket',
  'xdp_receive',
  'icrc',
  'crc',
  'crc_pclmul',
  'crc_vpclmul',
  'address',
  'peers',
  'id_window',
];
/** Frames taken, entries refused, and those of the frames that are no packets: none here is. */
const EXPECTED = [
  ['a frame', 1, 0],
  ['an address beyond the memory', 1, 1],
  ['an address among the places to send from', 1, 1],
  ['an offset beyond the memory', 1, 2],
  ['a length beyond the memory', 1, 2],
  ['lengths whose sum is small', 1, 2],
  ['no bytes', 3, 0],
  ['a part beyond the memory', 1, 2],
  ['parts that are not in order', 2, 0],
  ['a frame that ends early', 0, 0],
  ['the rest of it', 2, 0],
  ['a frame without an end', 0, 64],
  ['a frame behind it', 1, 0],
  ['a producer far ahead', 64, 0],
  ['a producer behind', 64, 0],
] as const;

test.skipIf(!cable)(
  'entries that are impossible are counted and left out, and the next frame is taken',
  () => {
    const program = join(folder, 'rings');
    execFileSync(process.env.CXX ?? 'g++', [
      ...['-std=c++17', '-O1', '-g', '-fsanitize=address,undefined', '-fno-sanitize-recover', '-o', program],
      join(import.meta.dirname, 'xdp/rings.cc'),
      ...SOURCES.map((name) => join(native, `src/${name}.cc`)),
    ]);
    const [end] = cable!.ends;
    const said = execFileSync('ip', ['netns', 'exec', end.namespace, program, end.interface], {
      encoding: 'utf8',
    });
    const cases = said
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(cases).toEqual([
      ...EXPECTED.map(([what, frames, bad]) => ({ what, frames, bad, malformed: frames })),
      { what: 'places at impossible addresses', none: true },
    ]);
  },
);
