/** The output of `exportPackets`, read again: the same packets; without addresses and payload, the same analysis. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import {
  Anonymizer,
  Commentator,
  type ExportOptions,
  exportPackets,
  packetFilter,
  type RocePacket,
  readPackets,
} from '@node-roce/capture';
import { LinkType, PcapngEncoder } from '@node-roce/pcap';
import { CaptureWriter, createCaptureFile, openCapture } from '@node-roce/pcap/node';
import { internetChecksum, parseFrame, toHex, udpChecksum } from '@node-roce/wire';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';

const captures = join(import.meta.dirname, 'fixtures/captures');
const scratch = mkdtempSync(join(tmpdir(), 'roce-export-'));
afterAll(() => rmSync(scratch, { recursive: true }));
let files = 0;

async function exported(source: string, options: ExportOptions = {}): Promise<string> {
  const path = join(scratch, `${files++}.pcapng`);
  await using writer = await createCaptureFile(path, {});
  await exportPackets(source, writer, options);
  return path;
}

interface Seen {
  fields: Record<string, unknown>;
  payload: string;
  icrc: number;
  source: string;
  destination: string;
}

async function packetsOf(path: string): Promise<Seen[]> {
  const seen: Seen[] = [];
  const { summary } = await readPackets(path, {
    onPacket: (packet, { addresses }) => {
      const { time, opcode, destQp, psn, ackReq, pkey, ecn, dscp, hopLimit, ipId, sourcePort, vlan } = packet;
      const { payloadLength, padCount } = packet;
      seen.push({
        fields: {
          ...{ time, opcode, destQp, psn, ackReq, pkey, ecn, dscp, hopLimit, ipId, sourcePort, vlan },
          ...{ payloadLength, padCount },
        },
        payload: toHex(
          packet.bytes.slice(packet.payload, Math.min(packet.payload + payloadLength, packet.end)),
        ),
        icrc: packet.icrc,
        source: addresses.text(packet.source),
        destination: addresses.text(packet.destination),
      });
    },
  });
  expect(summary.damage).toBeUndefined();
  return seen;
}

const names = readdirSync(captures).filter((name) => /\.pcap(ng)?$/.test(name));

describe.each(names)('%s', (name) => {
  const source = join(captures, name);

  test('as it is: the same packets, one a frame', async () => {
    const before = await packetsOf(source);
    const path = await exported(source);
    // Times count from the first frame, and that may have been another one.
    const start = Number(before[0]?.fields.time);
    for (const { fields } of before) fields.time = Number(fields.time) - start;
    expect(await packetsOf(path)).toEqual(before);
    expect((await readPackets(path)).summary).toMatchObject({
      frames: before.length,
      superPackets: 0,
      otherFrames: 0,
    });
  });

  test('anonymised and without payload: all else as it was, ICRCs right or wrong as they were', async () => {
    const anonymizer = new Anonymizer('for tests');
    const before = await packetsOf(source);
    const path = await exported(source, { anonymizer, zeroPayload: true });
    const after = await packetsOf(path);
    const start = Number(before[0]?.fields.time);
    expect(after.map(({ fields, icrc }) => ({ fields, icrc }))).toEqual(
      before.map(({ fields, icrc }) => ({
        fields: { ...fields, time: Number(fields.time) - start },
        icrc,
      })),
    );
    expect(after.map(({ source, destination }) => [source, destination])).toEqual(
      before.map(({ source, destination }) => [anonymizer.text(source), anonymizer.text(destination)]),
    );
    // MADs keep what the connection manager needs.
    for (const [i, { payload, fields }] of after.entries()) {
      if (fields.destQp !== 1) expect(payload).toMatch(/^0*$/);
      else expect(payload.length).toBe(before[i].payload.length);
    }
  });
});

/** Every address of the fixtures' hosts in every form that it has in a packet. */
const HOSTS = [
  '0a4d0002',
  '0a4d0003',
  '0a4d0001',
  'fd770000000000000000000000000002',
  'fd770000000000000000000000000003',
];
const MACS = ['525400770002', '525400770003', '505400fffe770002', '505400fffe770003'];

test.each(names.filter((name) => name.startsWith('cm_')))(
  '%s: nothing in the file names a host any more',
  async (name) => {
    const source = join(captures, name);
    const whole = toHex(readFileSync(source));
    expect(HOSTS.some((host) => whole.includes(host))).toBe(true);
    const path = await exported(source, { anonymizer: new Anonymizer('for tests'), zeroPayload: true });
    const text = toHex(readFileSync(path));
    for (const secret of [...HOSTS, ...MACS]) expect(text).not.toContain(secret);
  },
);

test('checksums of IP and UDP are right', async () => {
  for (const name of ['op_all.pcap', 'cm_rping.pcap', 'cm_rping_ipv6.pcap']) {
    const path = await exported(join(captures, name), { anonymizer: new Anonymizer(), zeroPayload: true });
    await using capture = openCapture(path);
    let checked = 0;
    for await (const batch of capture) {
      for (const { data } of batch) {
        const parsed = parseFrame(data, LinkType.ETHERNET);
        if (!parsed.ok) throw new Error(parsed.detail);
        const { ip, bthOffset, udp } = parsed.packet;
        const at = bthOffset - 8;
        const start = at - (ip.version === 4 ? 20 : 40);
        if (ip.version === 4) expect(internetChecksum(data, start, at)).toBe(0);
        if (udp!.checksum !== 0) expect(udp!.checksum).toBe(udpChecksum(data, start, at));
        checked++;
      }
    }
    expect(checked).toBeGreaterThan(5);
  }
});

test('a slice: the packets that are wanted, and no others', async () => {
  const source = join(captures, 'op_all.pcap');
  const all = await packetsOf(source);
  const middle = Number(all[20].fields.time);
  const isWanted = (packet: RocePacket, reader: { addresses: Parameters<typeof packetFilter>[1] }) =>
    packetFilter({ qp: 0x60, from: middle }, reader.addresses)(packet);
  const sliced = await packetsOf(await exported(source, { isWanted }));
  const wanted = all.filter(({ fields }) => fields.destQp === 0x60 && Number(fields.time) >= middle);
  expect(wanted.length).toBeGreaterThan(3);
  expect(sliced.map(({ fields }) => fields.psn)).toEqual(wanted.map(({ fields }) => fields.psn));
});

test('comments stand at their packets', async () => {
  const path = await exported(join(captures, 'op_all.pcap'), {
    commentsOf: ({ frame }) => (frame === 3 ? ['third', 'again'] : []),
  });
  await using capture = openCapture(path);
  const comments: (readonly string[])[] = [];
  for await (const batch of capture) comments.push(...batch.map((record) => record.comments));
  expect(comments.filter((list) => list.length > 0)).toEqual([['third', 'again']]);
  expect(comments[2]).toEqual(['third', 'again']);
});

const hasTshark = spawnSync('tshark', ['--version']).status === 0;

test.skipIf(!hasTshark)('tshark shows the comments', async () => {
  const path = await exported(join(captures, 'op_all.pcap'), {
    commentsOf: ({ psn, opcode }) => [`opcode ${opcode}, psn ${psn}`],
  });
  const fields = ['frame.comment', 'infiniband.bth.opcode', 'infiniband.bth.psn'].flatMap((name) => [
    '-e',
    name,
  ]);
  const { stdout } = spawnSync('tshark', ['-r', path, '-T', 'fields', ...fields], { encoding: 'utf8' });
  const lines = stdout.trim().split('\n');
  expect(lines).toHaveLength(42);
  for (const line of lines) {
    const [comment, opcode, psn] = line.split('\t');
    expect(comment).toBe(`opcode ${opcode}, psn ${psn}`);
  }
});

test('damaged captures: nothing is thrown, and the output can be read', {
  timeout: 60_000,
}, async () => {
  const sources = ['op_all.pcap', 'cm_rping.pcap', 'cm_rping_ipv6.pcap', 'loss10_B_read.pcap'].map((name) =>
    readFileSync(join(captures, name)).subarray(0, 12_000),
  );
  for (const source of [...sources]) {
    // As pcapng, with names and comments.
    const output = new PassThrough();
    const encoder = new PcapngEncoder({ comments: ['all'] });
    encoder.interface({ linkType: LinkType.ETHERNET, name: 'eth0', description: 'first', filter: 'udp' });
    const writer = new CaptureWriter(output, encoder);
    const written = buffer(output);
    await using capture = openCapture(Readable.from([source.subarray(0, whole(source))]));
    for await (const batch of capture) {
      for (const { data, seconds, nanoseconds, originalLength } of batch)
        writer.write({ data, seconds, nanoseconds, originalLength, comments: ['one', 'two'] });
    }
    await writer.close();
    sources.push(await written);
  }
  await fc.assert(
    fc.asyncProperty(
      fc.nat(sources.length - 1),
      fc.array(fc.tuple(fc.nat(), fc.integer({ min: 1, max: 255 })), { minLength: 1, maxLength: 30 }),
      fc.record({ zeroPayload: fc.boolean(), anonymous: fc.boolean() }),
      async (index, flips, { zeroPayload, anonymous }) => {
        const bytes = Uint8Array.from(sources[index]);
        // Behind the file header: another link type would leave nothing.
        for (const [at, mask] of flips) bytes[24 + (at % (bytes.length - 24))] ^= mask;
        const commentator = new Commentator([]);
        const output = new PassThrough();
        const written = buffer(output);
        const writer = new CaptureWriter(output, new PcapngEncoder());
        const { packets } = await exportPackets(Readable.from([bytes]), writer, {
          zeroPayload,
          anonymizer: anonymous ? new Anonymizer('for tests') : undefined,
          commentsOf: (packet) => commentator.commentsOf(packet),
        });
        await writer.close();
        const { summary } = await readPackets(Readable.from([await written]));
        expect(summary.damage).toBeUndefined();
        expect(summary.rocePackets).toBe(packets);
      },
    ),
    { numRuns: 400 },
  );
});

/** Bytes of whole records at the beginning of a classic pcap. */
function whole(pcap: Buffer): number {
  let end = 24;
  for (let next = end; next + 16 <= pcap.length; next += 16 + pcap.readUInt32LE(next + 8)) end = next;
  return end;
}
