/** The output of `exportPackets`, read again: the same packets; without addresses and payload, the same analysis. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import {
  Anonymizer,
  analyzeCapture,
  Commentator,
  type ExportOptions,
  exportPackets,
  packetFilter,
  type RocePacket,
  readPackets,
} from '@node-roce/capture/node';
import { LinkType, PcapngEncoder } from '@node-roce/pcap';
import { CaptureWriter, createCaptureFile, openCapture } from '@node-roce/pcap/node';
import {
  CM_LAYOUTS,
  cmNameAt,
  formatIpAddress,
  formatMac,
  GSI_QPN,
  gidToIpBytes,
  gidToIpText,
  internetChecksum,
  linkLocalGidFromMac,
  MAD_BYTES,
  MAD_HEADER_BYTES,
  parseFrame,
  parseIpAddress,
  toHex,
  udpChecksum,
} from '@node-roce/wire';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';

const captures = join(import.meta.dirname, '../fixtures/captures');
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

/** A capture again as pcapng, cut at `snapLength` bytes, with `texts` wherever a pcapng has room for some. */
async function cut(source: string, snapLength: number, texts: readonly string[]): Promise<string> {
  const path = join(scratch, `${files++}.pcapng`);
  await using writer = await createCaptureFile(path, {
    comments: texts,
    hardware: texts.join(),
    os: texts.join(),
  });
  const ids = new Map<number, number>();
  const [name, description, filter] = [0, 1, 2].map(() => texts.join(' '));
  await using capture = openCapture(source);
  for await (const batch of capture) {
    for (const { data, seconds, nanoseconds, originalLength, interface: info } of batch) {
      const { linkType } = info;
      const interfaceId =
        ids.get(linkType) ?? writer.encoder.interface({ linkType, name, description, filter });
      ids.set(linkType, interfaceId);
      const kept = data.subarray(0, snapLength);
      writer.write({ data: kept, seconds, nanoseconds, originalLength, interfaceId, comments: texts });
    }
    await writer.drain();
  }
  return path;
}

/** Addresses, GIDs, GUIDs and MAC addresses of the hosts in a capture, in hexadecimal; addresses also as text. */
async function hostsIn(source: string): Promise<{ ids: Set<string>; texts: Set<string> }> {
  const ids = new Set<string>();
  const texts = new Set<string>();
  const add = (id: Uint8Array, text?: string) => {
    if (id.every((byte) => byte === 0)) return;
    ids.add(toHex(id));
    if (text !== undefined) texts.add(text);
  };
  const addAddress = (address: Uint8Array) => {
    add(address, formatIpAddress(address));
    if (address.length === 16) add(gidToIpBytes(address), gidToIpText(address));
  };
  const addMac = (mac: Uint8Array) => {
    // Groups stay.
    if ((mac[0] & 1) === 1) return;
    add(mac, formatMac(mac));
    add(linkLocalGidFromMac(mac).subarray(8));
  };
  const { summary } = await readPackets(source, {
    onPacket: (packet, { addresses }) => {
      for (const index of [packet.source, packet.destination])
        addAddress(parseIpAddress(addresses.text(index))!);
      if (packet.linkType === LinkType.ETHERNET)
        for (const at of [packet.link, packet.link + 6]) addMac(packet.bytes.slice(at, at + 6));
      if (packet.destQp !== GSI_QPN || packet.payloadLength !== MAD_BYTES) return;
      const mad = packet.bytes.slice(packet.payload, packet.end);
      const name = cmNameAt(mad, 0)!;
      for (const { kind, at, bytes } of Object.values(CM_LAYOUTS[name])) {
        const id = mad.slice(MAD_HEADER_BYTES + at, MAD_HEADER_BYTES + at + bytes);
        if (kind === 'gid' && id.some((byte) => byte !== 0)) addAddress(id);
        if (kind === 'guid') add(id);
      }
    },
  });
  expect(ids.size > 1).toBe(summary.rocePackets > 0);
  return { ids, texts };
}

/** Snap lengths that cut messages of the connection manager: in front of the GIDs, behind them, in the ICRC. */
const SNAP_LENGTHS = [128, 192, 250, 316, 65_535];

/** `export --anonymize --comments`: exports the capture whole and cut, and looks for its hosts in all bytes of the output. */
async function testHostsAreGone(source: string): Promise<void> {
  const { ids, texts } = await hostsIn(source);
  for (const snapLength of SNAP_LENGTHS) {
    const input = await cut(source, snapLength, [...texts]);
    const { findings } = await analyzeCapture(input);
    // Programs may send addresses, too: perftest does.
    const isInPayload = /^pf_.*_cm/.test(basename(source));
    for (const zeroPayload of isInPayload ? [true] : [true, false]) {
      const commentator = new Commentator(findings);
      const path = await exported(input, {
        anonymizer: new Anonymizer('for tests'),
        zeroPayload,
        commentsOf: (packet) => [...commentator.commentsOf(packet), ...texts],
      });
      const output = readFileSync(path);
      const left = [
        ...[...ids].filter((id) => output.includes(Buffer.from(id, 'hex'))),
        ...[...ids, ...texts].filter((text) => output.includes(text)),
      ];
      expect(left, `at snap length ${snapLength}, payload ${zeroPayload ? 'zeroed' : 'kept'}`).toEqual([]);
    }
  }
}

const folders = [captures, '../captures-review', '../placement'].map((folder) => resolve(captures, folder));
const sources = folders.flatMap((folder) =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.pcap(ng)?$/.test(name))
    .map((name) => join(folder, name)),
);
const QUICK = ['cm_rping.pcap', 'cm_rping_refused.pcap', 'cm_rping_ipv6.pcap'];
const isQuick = (source: string) => QUICK.includes(basename(source));

describe('anonymized, nothing in the file names a host', () => {
  test.each(sources.filter(isQuick))('%s', testHostsAreGone);
  test.each(sources.filter((source) => !isQuick(source)))('%s', { tags: ['slow'] }, testHostsAreGone);
});

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

test('the interface: name, description and capture filter stay, and go where addresses are anonymized', async () => {
  const named = { name: 'eth0', description: 'of host 10.77.0.2', filter: 'host 10.77.0.2 and udp' };
  const source = join(scratch, 'named.pcapng');
  {
    await using writer = await createCaptureFile(source, {});
    const interfaceId = writer.encoder.interface({ linkType: LinkType.ETHERNET, ...named });
    await using capture = openCapture(join(captures, 'op_all.pcap'));
    for await (const batch of capture) {
      for (const { data, seconds, nanoseconds, originalLength } of batch)
        writer.write({ data, seconds, nanoseconds, originalLength, interfaceId });
    }
  }
  const interfaceOf = async (path: string) => {
    await using capture = openCapture(path);
    for await (const [record] of capture) return record.interface;
    throw new Error('no packet');
  };
  expect(await interfaceOf(await exported(source))).toMatchObject(named);
  const anonymous = await exported(source, { anonymizer: new Anonymizer('for tests') });
  for (const property of Object.keys(named))
    expect(await interfaceOf(anonymous)).not.toHaveProperty(property);
});

test('a frame without a time has that of the packet before it', async () => {
  const source = await exported(join(captures, 'op_all.pcap'));
  const [, second] = await packetsOf(source);
  const bytes = readFileSync(source);
  // The second packet, once more in a simple packet block.
  await using capture = openCapture(source);
  const records = [];
  for await (const batch of capture) records.push(...batch.map(({ data }) => data.slice()));
  const data = Buffer.concat([records[1], Buffer.alloc(-records[1].length & 3)]);
  const words = (...values: number[]) => Buffer.from(Uint32Array.from(values).buffer);
  const size = 16 + data.length;
  const simple = Buffer.concat([words(3, size, records[1].length), data, words(size)]);
  const untimed = join(scratch, 'untimed.pcapng');
  writeFileSync(untimed, Buffer.concat([bytes, simple]));
  const before = await packetsOf(untimed);
  expect(before.at(-1)!.fields.psn).toBe(second.fields.psn);
  const after = await packetsOf(await exported(untimed));
  expect(after.at(-1)!.fields.time).toBe(after.at(-2)!.fields.time);
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

test('damaged captures: nothing is thrown, and the output can be read', async () => {
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
