/**
 * RoCE under everything that networks and capture tools put around it: each kind in a file that is built from the
 * specifications (capture-kinds/), read by us and by tshark. Then each file cut at every byte, and with every byte changed:
 * fewer packets or a message, never an exception.
 */
import { spawnSync } from 'node:child_process';
import { createWriteStream, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Anonymizer, exportPackets, PacketReader, readPackets, verdictName } from '@node-roce/capture/node';
import { CaptureParser, PcapngEncoder } from '@node-roce/pcap';
import { CaptureWriter } from '@node-roce/pcap/node';
import { afterAll, describe, expect, test } from 'vitest';
import { EXCHANGE } from './kinds/frames.ts';
import { KINDS, type Kind, pcapOf } from './kinds/kinds.ts';

const folder = mkdtempSync(join(tmpdir(), 'roce-kinds-'));
afterAll(() => rmSync(folder, { recursive: true }));

function written(kind: Kind): string {
  const file = join(folder, `${kind.name}.pcap`);
  writeFileSync(file, pcapOf(kind));
  return file;
}

const hasTshark = spawnSync('tshark', ['--version']).status === 0;
if (!hasTshark) console.warn('tshark is not installed: the kinds of captures are not compared with it');

/** By link type: tshark takes half a second to start, so that all kinds of one are a file. */
const asked = new Map<number, Map<string, string[]>>();

/** `opcode psn qp` of each packet of the kind; a frame may hold several. */
function tshark({ name, linkType }: Kind): string[] {
  let found = asked.get(linkType);
  if (found === undefined) {
    found = ofLinkType(linkType);
    asked.set(linkType, found);
  }
  return found.get(name) ?? [];
}

function ofLinkType(linkType: number): Map<string, string[]> {
  const kinds = KINDS.filter((kind) => kind.linkType === linkType);
  const file = join(folder, `link-type-${linkType}.pcap`);
  writeFileSync(file, pcapOf({ linkType, frames: kinds.flatMap(({ frames }) => frames) }));
  const owners = kinds.flatMap(({ name, frames }) => frames.map(() => name));
  const fields = ['frame.number', 'infiniband.bth.opcode', 'infiniband.bth.psn', 'infiniband.bth.destqp'];
  const { stdout } = spawnSync('tshark', [
    ...['-r', file, '-Y', 'infiniband.bth', '-T', 'fields'],
    ...fields.flatMap((field) => ['-e', field]),
  ]);
  const found = new Map<string, string[]>();
  for (const line of stdout
    .toString()
    .split('\n')
    .filter((each) => each !== '')) {
    const [[frame = 0] = [], opcodes = [], psns = [], qps = []] = line
      .split('\t')
      .map((column) => column.split(',').map(Number));
    const name = owners[frame - 1];
    const packets = opcodes.map((opcode, i) => `${opcode} ${psns[i]} ${qps[i]}`);
    found.set(name, [...(found.get(name) ?? []), ...packets]);
  }
  return found;
}

/** Of frames.ts: the hosts' addresses, a segment, the MACs of host A, also in MACsec, and the agent. */
const SECRETS = [
  'c0000201',
  '20010db80000000000000000000000',
  'fd00000000000000000000000000000f',
  '020000000001',
  'c6336409',
];

const EXPECTED = EXCHANGE.map(({ opcode, psn, destQp }) => `${opcode} ${psn} ${destQp}`);

describe.each(KINDS)('$name', (kind) => {
  test('all packets, with their ICRCs', async () => {
    const seen: string[] = [];
    const marks = new Set<string>();
    const ends = new Set<string>();
    await readPackets(written(kind), {
      onPacket: (packet, { addresses }) => {
        const { opcode, psn, destQp, icrc, tunnel, sampled } = packet;
        seen.push(`${opcode} ${psn} ${destQp}`);
        marks.add(`${tunnel} ${sampled ? 'sampled ' : ''}${sampled ? '' : verdictName(icrc)}`);
        ends.add(`${addresses.text(packet.source)} ${addresses.text(packet.destination)}`);
      },
    });
    expect(seen).toEqual(EXPECTED);
    const { tunnel = 'none', whole = true } = kind;
    expect([...marks]).toEqual([`${tunnel} ${whole ? 'ok' : 'sampled '}`]);
    // One connection has two directions, each against the other.
    expect(ends.size).toBe(2);
    const [there = '', back] = ends;
    expect(back).toBe(there.replace(/^(.*) (.*)$/, there.includes('LID') ? 'LID 2 LID 1' : '$2 $1'));
  });

  test.skipIf(!hasTshark || kind.unknownToTshark !== undefined)(
    'the same packets as tshark',
    { tags: ['slow', 'gate'] },
    () => {
      expect(tshark(kind)).toEqual(EXPECTED);
    },
  );

  test('anonymized: the same packets with fitting ICRCs, and nothing of what stood around them', async () => {
    const file = join(folder, `${kind.name}-anonymous.pcapng`);
    const encoder = new PcapngEncoder();
    const writer = new CaptureWriter(createWriteStream(file), encoder);
    await exportPackets(written(kind), writer, { anonymizer: new Anonymizer('key') });
    await writer.close();
    // LIDs can't be renamed: native InfiniBand is left out.
    const isNative = kind.name.includes('infiniband');
    const seen: string[] = [];
    await readPackets(file, {
      onPacket: ({ opcode, psn, destQp, icrc }) => {
        seen.push(`${opcode} ${psn} ${destQp}`);
        // A sample may hold all of a short packet.
        expect(['ok', kind.whole === false ? 'none' : 'ok']).toContain(verdictName(icrc));
      },
    });
    expect(seen).toEqual(isNative ? [] : EXPECTED);
    const bytes = readFileSync(file).toString('hex');
    for (const secret of SECRETS) expect(bytes).not.toContain(secret);
  });

  test('cut at each byte, and with each byte changed', () => {
    // Two packets of each: the rest is alike.
    const whole = pcapOf({ ...kind, frames: kind.frames.slice(0, 2) });
    for (let length = 0; length < whole.length; length++)
      expect(packetsIn(whole.subarray(0, length))).toBeLessThanOrEqual(EXPECTED.length);
    for (const mask of [0x01, 0x80, 0xff]) {
      for (let at = 0; at < whole.length; at++) {
        const changed = Buffer.from(whole);
        changed[at] ^= mask;
        packetsIn(changed);
      }
    }
  });
});

/** How many packets there are. No exception, and no more work than the bytes give. */
function packetsIn(file: Uint8Array): number {
  const parser = new CaptureParser();
  const reader = new PacketReader({});
  parser.push(file);
  parser.end();
  for (const record of parser) reader.frame(record);
  reader.summary();
  return reader.rocePackets;
}

test('each kind has a name of its own', () => {
  expect(new Set(KINDS.map(({ name }) => name)).size).toBe(KINDS.length);
});
