import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pathToFileURL } from 'node:url';
import { constants, gzipSync } from 'node:zlib';
import { createRandom } from '@node-roce/wire';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { classicMicro, concat, hex, ngLittle, ngSections, parse, plain } from '../../testing/captures.ts';
import { CaptureErrorCode, PcapEncoder } from '../index.ts';
import { type CaptureReader, type CaptureSource, openCapture } from './index.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'pcap-reader-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function file(name: string, bytes: Uint8Array): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, bytes);
  return path;
}

/** Everything an opened capture gives: its packets, then what iteration threw. */
async function drain(reader: CaptureReader) {
  const records = [];
  let thrown: unknown;
  try {
    for await (const batch of reader) {
      expect(batch.length).toBeGreaterThan(0);
      for (const record of batch) records.push(plain(record));
    }
  } catch (error) {
    thrown = error;
  }
  return { records, thrown };
}

/** A capture of many packets, larger than the chunks in which files are read. */
function large(packets: number): Uint8Array {
  const encoder = new PcapEncoder({ linkType: 1 });
  // Bytes that deflate cannot shrink to nothing.
  const random = createRandom(1);
  for (let i = 0; i < packets; i++) {
    const data = Uint8Array.from({ length: 1000 }, () => random.next());
    encoder.packet({ seconds: i, nanoseconds: i, data });
  }
  return encoder.take().slice();
}

const flow = async function* (bytes: Uint8Array, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
};

test('recycled memory: the same records, while they hold', async () => {
  const bytes = large(3500);
  const path = await file('recycled.pcap', bytes);
  const { records } = parse(bytes);
  expect(await drain(openCapture(path, { recycle: true }))).toEqual({ records, thrown: undefined });
  const buffers = new Set<ArrayBufferLike>();
  for await (const batch of openCapture(path, { recycle: true })) buffers.add(batch[1].bytes.buffer);
  expect(buffers.size).toBe(2);
});

test('without recycling, records stay valid', async () => {
  const path = await file('kept.pcap', large(1500));
  const kept = [];
  for await (const batch of openCapture(path)) kept.push(...batch);
  expect(kept.map(plain)).toEqual(parse(large(1500)).records);
});

test('a path, a URL, a stream and an async iterable give the same', async () => {
  const path = await file('sections.pcapng', ngSections);
  const { records } = parse(ngSections);
  const sources: CaptureSource[] = [
    path,
    pathToFileURL(path),
    Readable.from([Buffer.from(ngSections)]),
    flow(ngSections, 3),
  ];
  for (const source of sources) {
    const reader = openCapture(source);
    expect(reader.section).toBeUndefined();
    expect(await drain(reader)).toEqual({ records, thrown: undefined });
    expect(reader.section?.index).toBe(1);
    expect(reader.packetCount).toBe(3);
    expect(reader.offset).toBe(ngSections.length);
    expect(reader.error).toBeUndefined();
  }
});

test('records one by one', async () => {
  const seen: string[] = [];
  for await (const record of openCapture(await file('micro.pcap', classicMicro)).records()) {
    seen.push(plain(record).data);
  }
  expect(seen).toEqual(['deadbeef', '0102030405']);
});

test('a file larger than a read, its records still good when all has been read', async () => {
  const input = large(2000);
  const kept = [];
  for await (const batch of openCapture(await file('large.pcap', input))) kept.push(...batch);
  expect(kept.map(plain)).toEqual(parse(input).records);
});

test('damage is thrown after the last good packet', async () => {
  const path = await file('cut.pcap', classicMicro.subarray(0, 60));
  const reader = openCapture(path);
  const { records, thrown } = await drain(reader);
  expect(records).toHaveLength(1);
  expect(thrown).toMatchObject({ name: 'CaptureError', code: CaptureErrorCode.TRUNCATED, offset: 44 });
  expect(reader.error).toBe(thrown);
});

test('damage in the middle is thrown though more follows', async () => {
  const damaged = concat(classicMicro, hex('00000000 00000000 ffffffff ffffffff'), classicMicro);
  const { records, thrown } = await drain(openCapture(flow(damaged, 10)));
  expect(records).toHaveLength(2);
  expect(thrown).toMatchObject({ code: CaptureErrorCode.TOO_LARGE, offset: classicMicro.length });
});

test('an empty file, one byte, and no file', async () => {
  expect((await drain(openCapture(await file('empty', hex(''))))).thrown).toMatchObject({
    code: CaptureErrorCode.TRUNCATED,
  });
  expect((await drain(openCapture(await file('one', hex('1f'))))).thrown).toMatchObject({
    code: CaptureErrorCode.TRUNCATED,
  });
  expect((await drain(openCapture(join(folder, 'missing')))).thrown).toMatchObject({ code: 'ENOENT' });
});

test('a stream of text is the caller’s mistake', async () => {
  const { thrown } = await drain(openCapture(Readable.from(['text'])));
  expect(thrown).toBeInstanceOf(TypeError);
});

test('leaving the loop early closes the source, at the first batch or later', async () => {
  for (const batches of [1, 2]) {
    const source = Readable.from(flow(large(10), 1500));
    let seen = 0;
    for await (const _batch of openCapture(source)) if (++seen === batches) break;
    expect(source.destroyed).toBe(true);
  }
});

test('disposing closes a source that was never read, and one that was', async () => {
  for (const read of [false, true]) {
    const source = Readable.from(flow(large(10), 1500));
    const reader = openCapture(source);
    if (read) await reader[Symbol.asyncIterator]().next();
    await reader[Symbol.asyncDispose]();
    expect(source.destroyed).toBe(true);
  }
});

describe('gzip', () => {
  const input = large(300);
  const { records } = parse(input);
  const packed = gzipSync(input);

  test('any chunking, the magic cut in two included', async () => {
    for (const size of [1 << 20, 100_000, 777]) {
      expect(await drain(openCapture(flow(packed, size)))).toEqual({ records, thrown: undefined });
    }
    const small = gzipSync(ngLittle);
    expect((await drain(openCapture(flow(small, 1)))).records).toEqual(parse(ngLittle).records);
  });

  test('several members are one capture', async () => {
    const members = concat(gzipSync(input.subarray(0, 100_001)), gzipSync(input.subarray(100_001)));
    expect(await drain(openCapture(await file('members.gz', members)))).toEqual({
      records,
      thrown: undefined,
    });
  });

  test('padding after the last member is passed over', async () => {
    const { records: read, thrown } = await drain(
      openCapture(flow(concat(packed, new Uint8Array(50_000)), 8192)),
    );
    expect(thrown).toBeUndefined();
    expect(read).toEqual(records);
  });

  test('cut off: the packets up to the cut, then the reason', async () => {
    for (const length of [3, 1000, 100_000, packed.length - 1]) {
      const reader = openCapture(flow(packed.subarray(0, length), 5000));
      const { records: read, thrown } = await drain(reader);
      expect(thrown).toMatchObject({ name: 'CaptureError', code: CaptureErrorCode.COMPRESSED });
      expect(reader.error).toBe(thrown);
      expect(read).toEqual(records.slice(0, read.length));
      // Random bytes deflate to about their own size, so the cut determines how much must have come out.
      expect(read.length).toBeGreaterThanOrEqual(Math.floor((length - 1500) / 1016));
    }
  });

  test('damaged: the packets before the piece in which inflating fails, then the reason', async () => {
    const damaged = new Uint8Array(packed);
    damaged[damaged.length - 8] ^= 1; // CRC of the member
    const { records: read, thrown } = await drain(openCapture(await file('damaged.gz', damaged)));
    expect(thrown).toMatchObject({ code: CaptureErrorCode.COMPRESSED });
    expect((thrown as Error).message).toContain('incorrect data check');
    expect(read).toEqual(records);
    // A block of no type.
    const blocks = gzipSync(input, { finishFlush: constants.Z_SYNC_FLUSH });
    const inside = await drain(openCapture(flow(concat(blocks, Uint8Array.of(7)), 8192)));
    expect(inside.thrown).toMatchObject({ code: CaptureErrorCode.COMPRESSED });
    // 16 KiB of input go in at a time.
    expect(inside.records.length).toBeGreaterThan(records.length - 18);
    expect(inside.records).toEqual(records.slice(0, inside.records.length));
  });

  test.each([
    ['garbage', Uint8Array.of(0x55, 1, 2, 3), 'incorrect header check (after a whole member)'],
    ['a second member that is cut off', packed.subarray(0, 7), 'unexpected end of file'],
    ['the magic and nothing else', packed.subarray(0, 2), 'unexpected end of file'],
    [
      'a member with flags of the future',
      Uint8Array.of(0x1f, 0x8b, 8, 0x80, 0, 0, 0, 0, 0, 3),
      'header flags',
    ],
  ])('%s after a whole member: all of its packets, then the reason', async (_, tail, reason) => {
    for (const size of [1 << 20, 1]) {
      const small = gzipSync(ngLittle);
      const { records: read, thrown } = await drain(openCapture(flow(concat(small, tail), size)));
      expect(read).toEqual(parse(ngLittle).records);
      expect(thrown).toMatchObject({ code: CaptureErrorCode.COMPRESSED, offset: ngLittle.length });
      expect((thrown as Error).message).toContain(reason);
    }
  });

  test('a header with an extra field, a name, a comment and a CRC', async () => {
    const header = hex('1f8b081e 00000000 0003 0300 010203 6e616d6500 636f6d6d656e7400 abcd');
    const member = concat(header, gzipSync(ngLittle).subarray(10));
    for (const size of [1 << 20, 1])
      expect(await drain(openCapture(flow(member, size)))).toEqual({
        records: parse(ngLittle).records,
        thrown: undefined,
      });
    for (let length = 2; length < header.length; length++)
      expect((await drain(openCapture(flow(member.subarray(0, length), 64)))).thrown).toMatchObject({
        code: CaptureErrorCode.COMPRESSED,
      });
  });

  test('damage inside, within good gzip, is reported by the parser', async () => {
    const { thrown } = await drain(openCapture(flow(gzipSync(input.subarray(0, 5000)), 100)));
    expect(thrown).toMatchObject({ code: CaptureErrorCode.TRUNCATED });
  });
});
