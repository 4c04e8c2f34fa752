/**
 * The reader of captures on every capture of the real rxe: packets as tshark counts and names them, ICRCs compared with a
 * recomputation here, which masks a copy and calls zlib (tshark shows the value and does not check
 * it); and files that are damaged in every way, which never make it throw.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32, gzipSync } from 'node:zlib';
import { PacketReader, type ReadResult, readPackets, verdictName } from '@node-roce/capture/node';
import { CaptureParser, LinkType, PcapngEncoder } from '@node-roce/pcap';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

const captures = join(import.meta.dirname, '../fixtures/captures');
const files = readdirSync(captures).filter((name) => name.endsWith('.pcap'));

interface Seen {
  frame: number;
  opcode: number;
  psn: number;
  destQp: number;
  icrc: string;
  icrcValue: number;
}

async function read(source: Parameters<typeof readPackets>[0]): Promise<ReadResult & { packets: Seen[] }> {
  const packets: Seen[] = [];
  const result = await readPackets(source, {
    onPacket: ({ frame, opcode, psn, destQp, icrc, bytes, end }) => {
      const icrcValue = new DataView(bytes.buffer, bytes.byteOffset).getUint32(end - 4, true);
      packets.push({ frame, opcode, psn, destQp, icrc: verdictName(icrc), icrcValue });
    },
  });
  return { ...result, packets };
}

/** The ICRC that an Ethernet frame without tags should have (IBTA vol 1 §7.8.1, annex A17). */
function expectedIcrc(frame: Uint8Array): number {
  const ip = frame.slice(14);
  const v4 = ip[0] >> 4 === 4;
  const ones = v4 ? [1, 8, 10, 11] : [1, 2, 3, 7];
  if (!v4) ip[0] |= 0x0f;
  const udp = v4 ? 20 : 40;
  const length = v4 ? (ip[2] << 8) | ip[3] : 40 + ((ip[4] << 8) | ip[5]);
  for (const at of [...ones, udp + 6, udp + 7, udp + 8 + 4]) ip[at] = 0xff;
  return crc32(ip.subarray(0, length - 4), crc32(new Uint8Array(8).fill(0xff)));
}

const hasTshark = spawnSync('tshark', ['--version']).status === 0;
if (!hasTshark) console.warn('tshark is not installed: packets are not compared with it');

function tshark(file: string): Omit<Seen, 'icrc' | 'icrcValue'>[] {
  const fields = ['frame.number', 'infiniband.bth.opcode', 'infiniband.bth.psn', 'infiniband.bth.destqp'];
  const args = [
    '-r',
    file,
    '-Y',
    'infiniband.bth',
    '-T',
    'fields',
    ...fields.flatMap((name) => ['-e', name]),
  ];
  const { stdout, status, stderr } = spawnSync('tshark', args, { encoding: 'utf8' });
  expect(status, stderr).toBe(0);
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const [frame, opcode, psn, destQp] = line.split('\t').map(Number);
      return { frame, opcode, psn, destQp };
    });
}

describe.each(files)('%s', (name) => {
  const path = join(captures, name);

  test('every ICRC is judged as a recomputation judges it', async () => {
    const { packets, summary } = await read(path);
    const parser = new CaptureParser();
    parser.push(readFileSync(path));
    const frames = [...parser].map((record) => record.data);
    expect(summary.frames).toBe(frames.length);
    expect(summary.rocePackets + summary.otherFrames).toBe(frames.length);
    for (const { frame, icrc, icrcValue } of packets) {
      expect(icrc, `frame ${frame}`).toBe(expectedIcrc(frames[frame - 1]) === icrcValue ? 'ok' : 'bad');
    }
    const bad = packets.filter(({ icrc }) => icrc === 'bad').length;
    expect(summary.icrc).toEqual({ ok: packets.length - bad, bad, none: 0 });
    expect(bad > 0).toBe(name.startsWith('corrupt'));
    const told = await readPackets(path, { icrc: false });
    expect(told.summary).toEqual({ ...summary, icrc: { ok: 0, bad: 0, none: packets.length } });
  });
});

test.skipIf(!hasTshark)('tshark sees the same packets in all of them', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'roce-captures-'));
  try {
    // One file, as each start of tshark costs a third of a second.
    const encoder = new PcapngEncoder();
    encoder.interface({ linkType: LinkType.ETHERNET });
    for (const name of files) {
      const parser = new CaptureParser();
      parser.push(readFileSync(join(captures, name)));
      for (const record of parser) encoder.packet(record);
    }
    const all = join(folder, 'all.pcapng');
    writeFileSync(all, encoder.take());
    const { packets, summary } = await read(all);
    expect(packets.map(({ icrc, icrcValue, ...rest }) => rest)).toEqual(tshark(all));
    expect(packets.length).toBe(2613);
    expect(summary.icrc.bad).toBe(20);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

describe('damaged files', () => {
  // Not a Buffer, whose `slice` is no copy.
  const small = Uint8Array.from(readFileSync(join(captures, 'pf_atomic_lat_faa.pcap')).subarray(0, 950));
  const pcapng = (() => {
    const parser = new CaptureParser();
    parser.push(small);
    const encoder = new PcapngEncoder();
    encoder.interface({ linkType: LinkType.ETHERNET });
    for (const record of parser) encoder.packet(record);
    return encoder.take().slice();
  })();

  /** Reads bytes as one chunk, without the file around. */
  function readBytes(bytes: Uint8Array) {
    const parser = new CaptureParser();
    let given = 0;
    const reader = new PacketReader({
      onPacket: ({ bth, end, frameOffset, frameLength }) => {
        given++;
        expect(bth + 12).toBeLessThanOrEqual(end);
        expect(end).toBeLessThanOrEqual(frameOffset + frameLength);
      },
    });
    parser.push(bytes);
    for (const record of parser) reader.frame(record);
    parser.end();
    const summary = reader.summary('', parser.error?.message);
    expect(summary.rocePackets).toBe(given);
    return summary;
  }

  test.each([
    ['pcap', small],
    ['pcapng', pcapng],
  ])('%s, cut at each byte', (_, bytes) => {
    let most = 0;
    for (let length = 0; length <= bytes.length; length++) {
      const { frames, rocePackets } = readBytes(bytes.slice(0, length));
      expect(frames).toBe(rocePackets);
      expect(frames).toBeGreaterThanOrEqual(most);
      most = frames;
    }
    expect(most).toBeGreaterThanOrEqual(5);
  });

  test.each([
    ['pcap', small],
    ['pcapng', pcapng],
  ])('%s, bits flipped anywhere', (_, bytes) => {
    const flip = fc.tuple(fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 }));
    fc.assert(
      fc.property(fc.array(flip, { minLength: 1, maxLength: 8 }), (flips) => {
        const damaged = bytes.slice();
        for (const [at, mask] of flips) damaged[at] ^= mask;
        readBytes(damaged);
      }),
      { numRuns: 1500 },
    );
  });

  test('random bytes, alone and behind a file header', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 2000 }), fc.boolean(), (random, headed) => {
        readBytes(headed ? Buffer.concat([small.subarray(0, 24), random]) : random);
      }),
      { numRuns: 1500 },
    );
  });

  test('through the file reader: the packets before the damage count, and the damage has a reason', async () => {
    const stream = async function* (bytes: Uint8Array) {
      for (let at = 0; at < bytes.length; at += 1000) yield bytes.subarray(at, at + 1000);
    };
    const whole = await read(stream(small));
    expect(whole.summary.damage).toMatch(/cut off at byte 950/);
    const zipped = gzipSync(small);
    expect((await read(stream(zipped))).packets).toEqual(whole.packets);
    for (let length = 0; length < zipped.length; length += 97) {
      const { summary } = await read(stream(zipped.subarray(0, length)));
      expect(summary.damage).toBeTypeOf('string');
    }
    for (let at = 10; at < zipped.length; at += 97) {
      const flipped = Uint8Array.from(zipped);
      flipped[at] ^= 0x55;
      await read(stream(flipped));
    }
    await expect(readPackets('/nonexistent.pcap')).rejects.toMatchObject({ code: 'ENOENT' });
    const signal = AbortSignal.abort(new Error('enough'));
    await expect(readPackets(join(captures, files[0]), { signal })).rejects.toThrow('enough');
  });
});
