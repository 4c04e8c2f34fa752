/** `roce dump --json` and tshark see the same packets, in every capture of the real rxe. */
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';

const root = join(import.meta.dirname, '../../..');
const captures = join(root, 'test/fixtures/captures');

/** Extension headers by tshark's name for them, and their bytes (IBTA vol 1 §9.3). */
const EXTENSIONS: Record<string, number> = {
  'infiniband.deth': 8,
  'infiniband.reth': 16,
  'infiniband.atomiceth': 28,
  'infiniband.aeth': 4,
  'infiniband.atomicacketh': 8,
  'infiniband.immdt': 4,
  'infiniband.ieth': 4,
};
const FIELDS = [
  'frame.number',
  'frame.time_epoch',
  'ip.src',
  'ipv6.src',
  'ip.dst',
  'ipv6.dst',
  'udp.srcport',
  'udp.length',
  'infiniband.bth.opcode',
  'infiniband.bth.psn',
  'infiniband.bth.destqp',
  'infiniband.bth.padcnt',
  'infiniband.bth.a',
  'infiniband.bth.se',
  'infiniband.bth.m',
  'data.len',
  ...Object.keys(EXTENSIONS),
] as const;

type Row = Record<(typeof FIELDS)[number], string>;

function call(command: string, args: readonly string[], code = 0): string {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  });
  if (error) throw error;
  expect(status, stderr).toBe(code);
  return stdout;
}

function tshark(file: string): Row[] {
  const fields = FIELDS.flatMap((name) => ['-e', name]);
  const out = call('tshark', [
    '-r',
    file,
    '-Y',
    'infiniband.bth',
    '-T',
    'fields',
    '-E',
    'separator=|',
    ...fields,
  ]);
  return out
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => Object.fromEntries(line.split('|').map((value, i) => [FIELDS[i], value])) as Row);
}

/** The opcodes in words, as the dissection has them: `Reliable Connection (RC) - SEND Only (4)`. */
function tsharkOpcodes(file: string): string[] {
  const out = call('tshark', ['-r', file, '-Y', 'infiniband.bth', '-O', 'infiniband']);
  return [...out.matchAll(/^\s+Opcode: (?:[^(\n]*\((\w+)\) - )?(.+) \(\d+\)$/gm)].map(
    ([, service, operation]) => (service === undefined ? operation : `${service} ${operation}`),
  );
}

/** @param code exit code: 1 for a capture without RoCE */
function roceDump(file: string, code: number): Record<string, unknown>[] {
  const out = call(process.execPath, [join(root, 'packages/cli/bin/roce.js'), 'dump', '--json', file], code);
  return out
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
}

/** The payload's length by the lengths that tshark shows. */
function payloadLength(row: Row): number {
  const extensions = Object.entries(EXTENSIONS).reduce(
    (sum, [field, bytes]) => sum + (row[field as keyof Row] === '' ? 0 : bytes),
    0,
  );
  const udpHeader = 8;
  const bth = 12;
  const icrc = 4;
  return (
    Number(row['udp.length']) - udpHeader - bth - extensions - Number(row['infiniband.bth.padcnt']) - icrc
  );
}

const files = readdirSync(captures).filter((name) => name.endsWith('.pcap'));

test('the captures are there', () => {
  expect(files.length).toBeGreaterThan(50);
});

describe.each(files)('%s', (name) => {
  const file = join(captures, name);

  test('same packets, addresses, opcodes, sequence numbers, lengths', () => {
    const theirs = tshark(file);
    const opcodes = tsharkOpcodes(file);
    expect(opcodes.length).toBe(theirs.length);
    const ours = roceDump(file, theirs.length === 0 ? 1 : 0);
    expect(
      ours.map(
        ({ frame, time, src, dst, srcPort, opcodeValue, opcode, psn, destQp, payloadLength, ...rest }) => ({
          frame,
          time,
          src,
          dst,
          srcPort,
          opcodeValue,
          opcode,
          psn,
          destQp,
          payloadLength,
          ackReq: rest.ackReq,
          solicited: rest.solicited,
          migReq: rest.migReq,
        }),
      ),
    ).toEqual(
      theirs.map((row, i) => ({
        frame: Number(row['frame.number']),
        time: row['frame.time_epoch'],
        src: row['ip.src'] || row['ipv6.src'],
        dst: row['ip.dst'] || row['ipv6.dst'],
        srcPort: Number(row['udp.srcport']),
        opcodeValue: Number(row['infiniband.bth.opcode']),
        opcode: opcodes[i]?.startsWith('Unknown') ? ours[i]?.opcode : opcodes[i],
        psn: Number(row['infiniband.bth.psn']),
        destQp: Number(row['infiniband.bth.destqp']),
        payloadLength: payloadLength(row),
        ackReq: isSet(row['infiniband.bth.a']),
        solicited: isSet(row['infiniband.bth.se']),
        migReq: isSet(row['infiniband.bth.m']),
      })),
    );
    // Where tshark itself calls the payload data, it counts the pad with it.
    for (const [i, row] of theirs.entries()) {
      if (row['data.len'] === '') continue;
      expect(Number(row['data.len']) - Number(row['infiniband.bth.padcnt'])).toBe(ours[i]?.payloadLength);
    }
  });
});

/** Booleans are 1 and 0 in tshark 4.0, True and False in later ones. */
const isSet = (value: string) => value === '1' || value === 'True';
