/** Zstandard: a stream that the zstd program wrote, frames written from RFC 8878, damage and bombs. */
import { expect, test } from 'vitest';
import { classicMicro, concat, hex } from '../../testing/captures.ts';
import { openCapture } from '../node/index.ts';

/** 51 times the first packet of `classicMicro`, and the second; by zstd 1.5 at level 19, with a checksum. */
const BY_ZSTD = Buffer.from(
  'KLUv/QRo/QEAFAPUw7KhAgAEAP//AAABAAAAFc1bB0DiAQAEAADerb7vFj9CDwAFAAAAZAAAAAECAwQFBAAAENFvFum28II4CtygEQ==',
  'base64',
);

/** A frame with one raw block (RFC 8878 §3.1.1): single segment, content size in four bytes. */
function frame(content: Uint8Array): Uint8Array {
  const head = new Uint8Array(12);
  head.set([0x28, 0xb5, 0x2f, 0xfd, 0xa0]);
  const view = new DataView(head.buffer);
  view.setUint32(5, content.length, true);
  const block = (content.length << 3) | 1;
  head.set([block & 0xff, (block >> 8) & 0xff, block >> 16], 9);
  return concat(head, content);
}

const SKIPPABLE = hex('502a4d18 03000000 aabbcc');

async function read(...chunks: Uint8Array[]): Promise<{ packets: number; error: string | undefined }> {
  async function* source(): AsyncGenerator<Uint8Array> {
    yield* chunks;
  }
  let packets = 0;
  try {
    for await (const batch of openCapture(source())) packets += batch.length;
    return { packets, error: undefined };
  } catch (error) {
    return { packets, error: (error as { code?: string }).code };
  }
}

test('a stream of the zstd program, whole and byte by byte', async () => {
  expect(await read(BY_ZSTD)).toEqual({ packets: 51, error: undefined });
  const bytes = Array.from(BY_ZSTD, (byte) => Uint8Array.of(byte));
  expect(await read(...bytes)).toEqual({ packets: 51, error: undefined });
});

test('several frames, and frames to skip', async () => {
  const [first, second] = [classicMicro.slice(0, 50), classicMicro.slice(50)];
  expect(await read(frame(first), SKIPPABLE, frame(second))).toEqual({ packets: 2, error: undefined });
});

test('a frame to skip behind another one, however the chunks are cut', async () => {
  const stream = concat(frame(classicMicro), SKIPPABLE);
  for (let at = 1; at < stream.length; at++)
    expect(await read(stream.subarray(0, at), stream.subarray(at)), `${at}`).toEqual({
      packets: 2,
      error: undefined,
    });
});

test('content that does not fit its checksum: all packets, and the reason', async () => {
  for (const back of [1, 2, 3, 4]) {
    const changed = Buffer.from(BY_ZSTD);
    changed[changed.length - back] ^= 0x40;
    expect(await read(changed)).toEqual({ packets: 51, error: 'ERR_PCAP_COMPRESSED' });
  }
});

test('a stream that is cut gives its packets up to there, and the reason', async () => {
  for (let length = 4; length < BY_ZSTD.length; length++) {
    const { packets, error } = await read(BY_ZSTD.subarray(0, length));
    expect(packets).toBeLessThanOrEqual(51);
    expect(error).toBe('ERR_PCAP_COMPRESSED');
  }
  const whole = frame(classicMicro);
  expect(await read(whole, hex('00112233'))).toEqual({ packets: 2, error: 'ERR_PCAP_COMPRESSED' });
});

/** Bytes whose change leaves the content as it is: the descriptor's unused bit, and the window's size. */
const isHarmless = (at: number, mask: number): boolean => (at === 4 && mask === 0x10) || at === 5;

test('any changed byte: a reason, never another error', { tags: ['slow', 'gate'] }, async () => {
  for (let at = 0; at < BY_ZSTD.length; at++) {
    for (const mask of [0x01, 0x10, 0x80, 0xff]) {
      const changed = Buffer.from(BY_ZSTD);
      changed[at] ^= mask;
      const { error } = await read(changed);
      if (error !== undefined || !isHarmless(at, mask)) expect(error, `${at} ${mask}`).toMatch(/^ERR_PCAP_/);
    }
  }
});

test('a window of 3.75 TiB is a reason', async () => {
  const frame = hex('28b52ffd 00 ff 010001 00 010001 00 010001 00');
  expect(await read(frame)).toEqual({ packets: 0, error: 'ERR_PCAP_COMPRESSED' });
});
