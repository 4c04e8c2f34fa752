import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parse } from '../../testing/captures.ts';
import { LinkType, PcapEncoder, PcapngEncoder } from '../index.ts';
import { CaptureWriter, createCaptureFile, openCapture } from './index.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'pcap-writer-'));
});
afterAll(() => rm(folder, { recursive: true }));

const packet = (i: number) => ({ seconds: i, nanoseconds: i, data: new Uint8Array(1000).fill(i) });

/** A slow sink: `release` lets one write through, and all from then on once `open` is true. */
class Sink extends Writable {
  readonly chunks: Uint8Array[] = [];
  open = false;
  #held: (() => void) | undefined;

  constructor() {
    super({ highWaterMark: 100_000 });
  }

  override _write(chunk: Uint8Array, _encoding: string, done: () => void): void {
    this.chunks.push(chunk);
    if (this.open) done();
    else this.#held = done;
  }

  release(): void {
    const done = this.#held;
    this.#held = undefined;
    done?.();
  }
}

test('a pcapng file with interfaces, packets and statistics', async () => {
  const path = join(folder, 'a.pcapng');
  const file = await createCaptureFile(path, {
    application: 'test',
    interfaces: [
      { linkType: LinkType.ETHERNET, name: 'eth0' },
      { linkType: LinkType.RAW, name: 'tun0' },
    ],
  });
  file.write({ ...packet(1), interfaceId: 1, comments: ['note'] });
  const id = file.encoder.interface({ linkType: LinkType.LINUX_SLL2 });
  file.write({ ...packet(2), interfaceId: id });
  file.encoder.statistics(0, { timestamp: 1n, dropped: 4 });
  await file.close();
  await file.close();

  const { records, error, parser } = parse(await readFile(path));
  expect(error).toBeUndefined();
  expect(records).toMatchObject([
    { linkType: 101, seconds: 1, comments: ['note'] },
    { linkType: 276, seconds: 2 },
  ]);
  expect(parser.section).toMatchObject({
    application: 'test',
    interfaces: [{ name: 'eth0', statistics: { dropped: 4 } }, { name: 'tun0' }, {}],
  });
});

test('a classic file, closed by leaving the scope', async () => {
  const path = join(folder, 'b.pcap');
  {
    await using file = await createCaptureFile(path, {
      format: 'pcap',
      linkType: LinkType.ETHERNET,
      resolution: 'micro',
      byteOrder: 'big',
    });
    file.write(packet(3));
  }
  const { records, parser } = parse(await readFile(path));
  expect(parser.section).toMatchObject({ format: 'pcap', byteOrder: 'big' });
  expect(records).toMatchObject([{ seconds: 3, nanoseconds: 0, capturedLength: 1000 }]);
});

test('a file without packets is a capture too', async () => {
  const path = join(folder, 'none.pcapng');
  await (await createCaptureFile(path, {})).close();
  expect(parse(await readFile(path))).toMatchObject({ records: [], error: undefined });
});

test('writeAll copies a capture, and waits when the stream is behind', async () => {
  const source = join(folder, 'source.pcapng');
  const file = await createCaptureFile(source, { interfaces: [{ linkType: 1 }] });
  await file.writeAll(Array.from({ length: 5000 }, (_, i) => packet(i)));
  await file.close();

  const copy = join(folder, 'copy.pcapng');
  const writer = await createCaptureFile(copy, { interfaces: [{ linkType: 1 }] });
  await writer.writeAll(openCapture(source).records());
  await writer.close();
  expect((await stat(copy)).size).toBeGreaterThan(5_000_000);
  expect(Buffer.compare(await readFile(copy), await readFile(source))).toBe(0);
});

test('write returns false when to wait, and drain waits', async () => {
  const sink = new Sink();
  const writer = new CaptureWriter(sink, new PcapEncoder({ linkType: 1 }));
  let written = 0;
  while (writer.write(packet(written))) written++;
  // 100,000 bytes of room, filled in pieces of 64 KiB.
  expect(written).toBeGreaterThan(60);
  expect(written).toBeLessThan(200);
  let drained = false;
  const waiting = writer.drain().then(() => {
    drained = true;
  });
  await turn();
  expect(drained).toBe(false);
  sink.open = true;
  sink.release();
  await waiting;
  expect(writer.write(packet(0))).toBe(true);
  await writer.close();
  expect(parse(Buffer.concat(sink.chunks)).records).toHaveLength(written + 2);
});

test('a quiet writer is on its way after a turn of the event loop; flush waits for the stream', async () => {
  const sink = new Sink();
  sink.open = true;
  const writer = new CaptureWriter(sink, new PcapngEncoder());
  writer.encoder.interface({ linkType: 1 });
  const { data, ...time } = packet(1);
  writer.write({ ...time, data });
  data.fill(0xff);
  expect(sink.chunks).toHaveLength(0);
  await turn();
  await turn();
  expect(parse(Buffer.concat(sink.chunks)).records[0]?.data).toBe('01'.repeat(1000));
  writer.write(packet(2));
  await writer.flush();
  expect(parse(Buffer.concat(sink.chunks)).records).toHaveLength(2);
  await writer.close();
});

test('a stream that fails: write, drain, flush and close all report it', async () => {
  const failing = new Writable({
    write: (_chunk, _encoding, done) => done(new Error('disk full')),
  });
  const writer = new CaptureWriter(failing, new PcapEncoder({ linkType: 1 }));
  writer.write(packet(1));
  await expect(writer.flush()).rejects.toThrow('disk full');
  expect(() => writer.write(packet(1))).toThrow('disk full');
  await expect(writer.drain()).rejects.toThrow('disk full');
  await expect(writer.flush()).rejects.toThrow('disk full');
  await expect(writer.close()).rejects.toThrow('disk full');
});

test('a stream that fails while one waits for it', async () => {
  const sink = new Sink();
  const writer = new CaptureWriter(sink, new PcapEncoder({ linkType: 1 }));
  for (let i = 0; writer.write(packet(i)); i++);
  const waiting = writer.drain();
  sink.destroy(new Error('gone'));
  await expect(waiting).rejects.toThrow('gone');
  await expect(writer.close()).rejects.toThrow('gone');
});

test('a stream that others close', async () => {
  const sink = new Sink();
  const writer = new CaptureWriter(sink, new PcapEncoder({ linkType: 1 }));
  sink.destroy();
  await turn();
  expect(() => writer.write(packet(1))).toThrow('closed by others');
  await expect(writer.drain()).rejects.toThrow('closed by others');
  await expect(writer.close()).rejects.toThrow();
});

test('bad packets, writing after close, and files that cannot be made', async () => {
  const path = join(folder, 'c.pcapng');
  const file = await createCaptureFile(path, { interfaces: [{ linkType: 1 }] });
  expect(() => file.write({ ...packet(1), interfaceId: 1 })).toThrow(/interface 1/);
  await file.close();
  expect(() => file.write(packet(1))).toThrow(/after close/);
  expect(parse(await readFile(path)).records).toEqual([]);
  await expect(createCaptureFile(path, { flags: 'wx' })).rejects.toMatchObject({ code: 'EEXIST' });
  await expect(createCaptureFile(join(folder, 'no', 'x'), {})).rejects.toMatchObject({ code: 'ENOENT' });
  await expect(createCaptureFile(path, { format: 'pcap', linkType: -1 })).rejects.toThrow(RangeError);
});
