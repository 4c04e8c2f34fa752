/** Captures in a browser's `Blob`: the packets of the command line's reading, and the same ends. */
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { classicMicro, concat } from '../../testing/captures.ts';
import { CaptureError, CaptureErrorCode, LinkType, PcapEncoder } from '../index.ts';
import { openCapture } from '../node/index.ts';
import { openBlob } from './index.ts';

/** Packets with their numbers in them, enough for several pieces and slices. */
function longCapture(count: number): Uint8Array {
  const encoder = new PcapEncoder({ linkType: LinkType.ETHERNET });
  const parts: Uint8Array[] = [];
  for (let i = 0; i < count; i++) {
    const data = new Uint8Array(1000);
    // Random enough that deflate does not shrink it to nothing.
    for (let at = 0, x = i + 1; at < data.length; at++) data[at] = x = (x * 1_103_515_245 + 12_345) >>> 7;
    encoder.packet({ seconds: 1, nanoseconds: i * 1000, data });
    parts.push(encoder.take().slice());
  }
  return concat(...parts);
}

async function read(source: AsyncIterable<{ nanoseconds: number; data: Uint8Array }[]>) {
  const packets: [number, number][] = [];
  let error: unknown;
  try {
    for await (const batch of source)
      for (const { nanoseconds, data } of batch) packets.push([nanoseconds, data.reduce((a, b) => a + b, 0)]);
  } catch (caught) {
    error = caught;
  }
  return { packets, error };
}

const whole = longCapture(12_000);

test.each([
  ['plain', whole],
  ['gzip', new Uint8Array(gzipSync(whole, { level: 1 }))],
])('a long capture, %s: the packets of openCapture, and how far the reading is', async (_, bytes) => {
  const told: number[] = [];
  const found = await read(
    openBlob(new Blob([bytes as Uint8Array<ArrayBuffer>]), { onRead: (n) => told.push(n) }),
  );
  async function* once() {
    yield bytes;
  }
  expect(found).toEqual(await read(openCapture(once())));
  expect(found.packets.length).toBe(12_000);
  expect(told.at(-1)).toBe(bytes.length);
});

test('a .gz that is cut: the packets before the cut are read; then comes the damage', async () => {
  const packed = gzipSync(whole, { level: 1 });
  const found = await read(openBlob(new Blob([packed.subarray(0, packed.length / 2)])));
  expect(found.error).toMatchObject({ code: CaptureErrorCode.COMPRESSED });
  expect(found.packets.length).toBeGreaterThan(5000);
  const short = gzipSync(classicMicro);
  expect(await read(openBlob(new Blob([short.subarray(0, short.length - 3)])))).toMatchObject({
    packets: (await read(openBlob(new Blob([classicMicro as Uint8Array<ArrayBuffer>])))).packets,
    error: { code: CaptureErrorCode.COMPRESSED },
  });
});

test('any changed byte behind the header of a .gz: an error of the capture, and no other', async () => {
  const packed = new Uint8Array(gzipSync(classicMicro));
  for (let at = 10; at < packed.length; at++) {
    const bad = packed.slice();
    bad[at] ^= 0x55;
    expect((await read(openBlob(new Blob([bad])))).error, `byte ${at}`).toBeInstanceOf(CaptureError);
  }
});

test('nothing, and a file that can not be read', async () => {
  expect(await read(openBlob(new Blob([])))).toMatchObject({
    packets: [],
    error: { code: CaptureErrorCode.TRUNCATED },
  });
  const gone = new Blob([gzipSync(whole, { level: 1 }) as Uint8Array<ArrayBuffer>]);
  const slice = gone.slice.bind(gone);
  const failure = new DOMException('it has changed', 'NotReadableError');
  gone.slice = (from, to) =>
    from === 0 ? slice(0, to) : ({ arrayBuffer: () => Promise.reject(failure) } as unknown as Blob);
  expect((await read(openBlob(gone))).error).toBe(failure);
});

test('leaving the loop early ends the reading', async () => {
  await using capture = openBlob(new Blob([gzipSync(whole, { level: 1 }) as Uint8Array<ArrayBuffer>]));
  for await (const batch of capture) {
    expect(batch.length).toBeGreaterThan(0);
    break;
  }
  expect(await capture[Symbol.asyncIterator]().next()).toMatchObject({ done: true });
});
