/** Capturing on loopback, where CAP_NET_RAW allows it; test/interop has what needs interfaces of its own. */
import { spawnSync } from 'node:child_process';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Capture, type CaptureOptions, layout } from '../index.js';
import { DEADLINE_MS } from './support.ts';

const W = layout.Captured;
const WORDS = layout.CAPTURED_SLOT_WORDS;

const mayCapture = (() => {
  try {
    new Capture({ interface: 'lo' }).close();
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EPERM') return false;
    throw error;
  }
})();

test.each([
  [{}, 'ERR_INVALID_ARG_TYPE'],
  [{ interface: '' }, 'ERR_OUT_OF_RANGE'],
  [{ interface: 'a-name-that-is-too-long' }, 'ERR_OUT_OF_RANGE'],
  [{ interface: 'lo', snapLength: 63 }, 'ERR_OUT_OF_RANGE'],
  [{ interface: 'lo', buffer: 2 ** 31 }, 'ERR_OUT_OF_RANGE'],
  [{ interface: 'lo', promiscuous: 1 }, 'ERR_INVALID_ARG_TYPE'],
])('%j is refused: %s', (options, code) => {
  expect(() => new Capture(options as CaptureOptions)).toThrow(expect.objectContaining({ code }));
});

test.skipIf(process.getuid?.() !== 0)('without CAP_NET_RAW: EPERM', () => {
  const script = `import { Capture } from ${JSON.stringify(new URL('../index.js', import.meta.url).href)};
    try { new Capture({ interface: 'lo' }) } catch ({ code, syscall }) { console.log(code, syscall) }`;
  const { stdout, stderr } = spawnSync(
    'setpriv',
    ['--bounding-set=-net_raw', '--inh-caps=-net_raw', process.execPath, '--input-type=module', '-e', script],
    { encoding: 'utf8' },
  );
  expect(stdout, stderr).toBe('EPERM socket\n');
});

describe.skipIf(!mayCapture)('on loopback', () => {
  let socket: Socket;
  let sender: number;
  beforeEach(async () => {
    socket = createSocket('udp4');
    socket.bind(0, '127.0.0.1');
    await once(socket, 'listening');
    sender = socket.address().port;
  });
  afterEach(() => socket.close());

  const send = (bytes: Uint8Array, port = 4791) =>
    new Promise<void>((resolve, reject) =>
      socket.send(bytes, port, '127.0.0.1', (error) => (error ? reject(error) : resolve())),
    );

  /** Frames of our own sender: other tests use the port too. */
  function collector(options: Partial<CaptureOptions> = {}) {
    const slab = new Uint8Array(1 << 19);
    const slots = new Uint32Array(WORDS * 256);
    const frames: { bytes: Uint8Array; original: number; time: number; outgoing: number }[] = [];
    let read = 0;
    const capture = new Capture({ interface: 'lo', buffer: 1 << 22, onWake: take, ...options });
    function take() {
      for (let count = capture.read(slab, slots); count > 0; count = capture.read(slab, slots)) {
        read += count;
        for (let i = 0; i < count; i++) {
          const slot = slots.subarray(i * WORDS, (i + 1) * WORDS);
          const bytes = slab.slice(slot[W.OFFSET], slot[W.OFFSET] + slot[W.LENGTH]);
          if (((bytes[34] << 8) | bytes[35]) !== sender) continue;
          frames.push({
            bytes,
            original: slot[W.ORIGINAL_LENGTH],
            time: slot[W.SECONDS] * 1000 + slot[W.NANOSECONDS] / 1e6,
            outgoing: slot[W.OUTGOING],
          });
        }
      }
    }
    return { capture, frames, take, read: () => read };
  }

  test('captures packets to port 4791, once each, with their times; nothing else', async () => {
    const { capture, frames } = collector();
    expect(capture.linkType).toBe(1);
    capture.start();
    const before = Date.now();
    await send(Uint8Array.of(1, 2, 3));
    await send(Uint8Array.of(4), 4792);
    await send(new Uint8Array(5000).fill(7));
    await send(Uint8Array.of(5));
    // Packets that were sent before the last one are here.
    await expect.poll(() => frames.at(-1)?.bytes.length).toBe(43);
    capture.close();
    expect(frames.map(({ bytes, original }) => [bytes.length, original])).toEqual([
      [45, 45],
      [5042, 5042],
      [43, 43],
    ]);
    expect([...frames[0].bytes.subarray(42)]).toEqual([1, 2, 3]);
    for (const { time, outgoing } of frames) {
      expect(Math.abs(time - before)).toBeLessThan(600_000);
      expect(outgoing).toBe(0);
    }
  });

  test('cuts at the snapshot length, and reports how long the frame was', async () => {
    const { capture, frames } = collector({ snapLength: 96 });
    capture.start();
    await send(new Uint8Array(1000));
    await expect.poll(() => frames.length).toBe(1);
    capture.close();
    expect(frames[0].bytes.length).toBe(96);
    expect(frames[0].original).toBe(1042);
  });

  test('keeps frames whole that are longer than asked, and cuts the others', async () => {
    const { capture, frames } = collector({ snapLength: 96, wholeFrom: 4000 });
    capture.start();
    for (const length of [1000, 3958, 3959, 20_000]) await send(new Uint8Array(length));
    await expect.poll(() => frames.length).toBe(4);
    expect(frames.map(({ bytes }) => bytes.length)).toEqual([96, 96, 4001, 20_042]);
    expect(() => capture.read(new Uint8Array(100_000), new Uint32Array(WORDS))).toThrow(RangeError);
    capture.close();
  });

  test('ICMP errors: a port without a socket', async () => {
    const slab = new Uint8Array(1 << 19);
    const slots = new Uint32Array(WORDS * 256);
    const errors: Uint8Array[] = [];
    const capture = new Capture({ interface: 'lo', buffer: 1 << 22, onWake: take });
    function take() {
      for (let count = capture.read(slab, slots); count > 0; count = capture.read(slab, slots)) {
        for (let i = 0; i < count; i++) {
          const bytes = slab.slice(
            slots[i * WORDS + W.OFFSET],
            slots[i * WORDS + W.OFFSET] + slots[i * WORDS + W.LENGTH],
          );
          // Protocol 1; behind the quoted IP header our port.
          if (bytes[23] === 1 && ((bytes[62] << 8) | bytes[63]) === sender) errors.push(bytes);
        }
      }
    }
    capture.start();
    await send(Uint8Array.of(1, 2, 3));
    await expect.poll(() => errors.length).toBe(1);
    // Destination unreachable, port.
    expect([...errors[0].subarray(34, 36)]).toEqual([3, 3]);
    capture.close();
  });

  test('counts the packets that find no room, and loses no others', async () => {
    const { capture, frames, take, read } = collector({ buffer: 1 << 20 });
    // Two blocks of 512 KiB have no room for 3 MB.
    for (let i = 0; i < 300; i++) await send(new Uint8Array(10_000).fill(i));
    capture.finish();
    await send(new Uint8Array(10));
    const missing = () => {
      take();
      const { received, dropped } = capture.stats();
      return received - dropped - read();
    };
    await expect.poll(missing).toBe(0);
    const { received, dropped } = capture.stats();
    capture.close();
    expect(dropped).toBeGreaterThan(0);
    expect(frames.every(({ bytes }) => bytes.length === 10_042)).toBe(true);
    expect(received).toBeGreaterThanOrEqual(300);
    expect(capture.stats()).toEqual({ received, dropped });
    expect(take).toThrow(expect.objectContaining({ code: 'ERR_ROCE_CAPTURE_CLOSED' }));
  });

  test('slots and slab that are too small: the rest comes with the next call', async () => {
    const capture = new Capture({ interface: 'lo', buffer: 1 << 20, snapLength: 200 });
    for (let i = 0; i < 5; i++) await send(new Uint8Array(100).fill(i));
    capture.finish();
    const { received } = capture.stats();
    let read = 0;
    const slots = new Uint32Array(WORDS * 3);
    expect(() => capture.read(new Uint8Array(203), slots)).toThrow(RangeError);
    expect(capture.read(new Uint8Array(1000), new Uint32Array(WORDS - 1))).toBe(0);
    // The kernel hands them over in its own time.
    while (read < received) {
      const count = capture.read(new Uint8Array(400), slots);
      expect(count).toBeLessThanOrEqual(3);
      read += count;
      if (count === 0) await new Promise(setImmediate);
    }
    expect(read).toBe(received);
    expect(read).toBeGreaterThanOrEqual(5);
    expect(capture.read(new Uint8Array(400), slots)).toBe(0);
    capture.close();
  });

  test('several captures of one interface each see a packet once', async () => {
    const all = Array.from({ length: 5 }, () => collector());
    for (const { capture } of all) capture.start();
    await send(Uint8Array.of(9));
    for (const { frames } of all) await expect.poll(() => frames.length).toBe(1);
    for (const { capture } of all) capture.close();
  });

  test('workers that end in the middle, and captures that are forgotten, leave nothing behind', async () => {
    const script = new URL('./capture-workers.mjs', import.meta.url).pathname;
    const { status, signal, stdout, stderr } = spawnSync(process.execPath, ['--expose-gc', script], {
      encoding: 'utf8',
      timeout: DEADLINE_MS,
    });
    expect({ status, signal, stdout }, stderr).toEqual({ status: 0, signal: null, stdout: '0\n' });
  });
});
