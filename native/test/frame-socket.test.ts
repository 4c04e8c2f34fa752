/** Whole frames on loopback, where CAP_NET_RAW allows it; test/links/raw-packet.test.ts has a cable. */
import { spawnSync } from 'node:child_process';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { turns } from '../../packages/verbs-api/testing/clock.ts';
import { FrameSocket, type FrameSocketOptions, layout } from '../index.js';

const { Tx, Fragment, TX_SLOT_WORDS, FRAGMENT_WORDS } = layout;
const TYPE = 0x88b5;
const EMSGSIZE = 90;
const EINVAL = 22;
const EFAULT = 14;

const mayOpen = (() => {
  try {
    new FrameSocket({ interface: 'lo' }).close();
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EPERM') return false;
    throw error;
  }
})();

test.each([
  [{}, 'ERR_INVALID_ARG_TYPE'],
  [{ interface: '' }, 'ERR_OUT_OF_RANGE'],
  [{ interface: 'lo', receiveBuffer: 1 }, 'ERR_OUT_OF_RANGE'],
  [{ interface: 'lo', onWake: 1 }, 'ERR_INVALID_ARG_TYPE'],
])('%j is refused: %s', (options, code) => {
  expect(() => new FrameSocket(options as FrameSocketOptions)).toThrow(expect.objectContaining({ code }));
});

test.skipIf(!mayOpen)('no such interface: ENODEV', () => {
  expect(() => new FrameSocket({ interface: 'nowhere' })).toThrow(
    expect.objectContaining({ code: 'ENODEV' }),
  );
});

test.skipIf(process.getuid?.() !== 0)('without CAP_NET_RAW: EPERM', () => {
  const script = `import { FrameSocket } from ${JSON.stringify(new URL('../index.js', import.meta.url).href)};
    try { new FrameSocket({ interface: 'lo' }) } catch ({ code, syscall }) { console.log(code, syscall) }`;
  const { stdout, stderr } = spawnSync(
    'setpriv',
    ['--bounding-set=-net_raw', '--inh-caps=-net_raw', process.execPath, '--input-type=module', '-e', script],
    { encoding: 'utf8' },
  );
  expect(stdout, stderr).toBe('EPERM socket\n');
});

/** `A = half word at 12; if A == type return all, else nothing`. */
const onlyType = (type: number) =>
  Uint32Array.of(0x28, 12, (0x15 | (1 << 24)) >>> 0, type, 0x06, 0x4_0000, 0x06, 0);

describe.skipIf(!mayOpen)('on loopback', () => {
  let socket: FrameSocket;
  let wakes = 0;
  const memory = new Uint8Array(1 << 17);
  beforeEach(() => {
    wakes = 0;
    socket = new FrameSocket({ interface: 'lo', onWake: () => wakes++ });
  });
  afterEach(() => socket.close());

  /** Sends frames that are cut from `memory`, each in pieces of those lengths. @returns their statuses */
  function send(frames: [offset: number, length: number][][], region = 0): number[] {
    const slots = new Uint32Array(frames.length * TX_SLOT_WORDS);
    const fragments = new Uint32Array(frames.flat().length * FRAGMENT_WORDS);
    let used = 0;
    for (const [i, pieces] of frames.entries()) {
      slots[i * TX_SLOT_WORDS + Tx.FRAGMENT_FIRST] = used;
      slots[i * TX_SLOT_WORDS + Tx.FRAGMENT_COUNT] = pieces.length;
      for (const [offset, length] of pieces) {
        const f = used++ * FRAGMENT_WORDS;
        fragments[f + Fragment.REGION] = region;
        fragments[f + Fragment.OFFSET_LOW] = offset;
        fragments[f + Fragment.LENGTH] = length;
      }
    }
    expect(socket.send(slots, fragments, 0, frames.length, [memory])).toBe(frames.length);
    return frames.map((_, i) => slots[i * TX_SLOT_WORDS + Tx.STATUS]);
  }

  function receive(most = 32): Uint8Array[] {
    const slab = new Uint8Array(32 * FrameSocket.FRAME_ROOM);
    const slots = new Uint32Array(2 * 32);
    const count = socket.receive(slab, slots, most);
    return Array.from({ length: count }, (_, i) => slab.slice(slots[2 * i], slots[2 * i] + slots[2 * i + 1]));
  }

  const frame = (type: number, length: number, first = 0) => {
    const bytes = Uint8Array.from({ length }, (_, i) => i + first);
    bytes.set([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, type >> 8, type & 0xff]);
    return bytes;
  };

  test('receives nothing until it has a filter, then the frames that pass it', () => {
    memory.set(frame(TYPE, 60));
    memory.set(frame(TYPE + 1, 60), 100);
    expect(send([[[0, 60]]])).toEqual([0]);
    expect(receive()).toEqual([]);
    socket.setFilter(onlyType(TYPE));
    expect(send([[[0, 60]], [[100, 60]], [[0, 60]]])).toEqual([0, 0, 0]);
    expect(receive()).toEqual([frame(TYPE, 60), frame(TYPE, 60)]);
    expect(socket.stats()).toEqual({ received: 2, dropped: 0 });
  });

  test('frames of many lengths and pieces come as they went', () => {
    socket.setFilter(onlyType(TYPE));
    const lengths = [14, 15, 60, 1514, 9014, 65_550];
    for (const length of lengths) {
      memory.set(frame(TYPE, length, length));
      const cut = Math.floor(length / 3);
      expect(
        send([
          [
            [0, cut],
            [cut, 0],
            [cut, length - cut],
          ],
        ]),
      ).toEqual([0]);
      expect(receive()[0]).toEqual(frame(TYPE, length, length));
    }
  });

  test('a VLAN tag is where it was', () => {
    socket.setFilter(Uint32Array.of(0x06, 0x4_0000));
    const tagged = frame(0x8100, 64);
    tagged.set([0x20, 0x05, TYPE >> 8, TYPE & 0xff], 14);
    memory.set(tagged);
    send([[[0, 64]]]);
    expect(receive()).toContainEqual(tagged);
  });

  test('takes no more frames than asked for', () => {
    socket.setFilter(onlyType(TYPE));
    memory.set(frame(TYPE, 60));
    send(Array.from({ length: 100 }, () => [[0, 60]]));
    expect(
      [receive(10), receive(32), receive(0), receive(100), receive(100)].map(({ length }) => length),
    ).toEqual([10, 32, 0, 32, 26]);
  });

  test('a frame that can not be sent is skipped, with its error as its status', () => {
    memory.set(frame(TYPE, 60));
    socket.setFilter(onlyType(TYPE));
    expect(send([[[0, 60]], [[0, 10]], [[0, 120_000]], [[(1 << 17) - 1, 2]], [[0, 60]]])).toEqual([
      0,
      EINVAL,
      EMSGSIZE,
      EFAULT,
      0,
    ]);
    expect(receive()).toHaveLength(2);
    expect(send([[[0, 60]]], 5)).toEqual([EFAULT]);
  });

  test('wakes while there are frames and they are wanted', async () => {
    memory.set(frame(TYPE, 60));
    socket.setFilter(onlyType(TYPE));
    send([[[0, 60]]]);
    // On loopback a frame is there once it was sent: the next turn of the event loop sees it.
    await turns();
    expect(wakes).toBe(0);
    socket.wantRead(true);
    socket.wantRead(true);
    await expect.poll(() => wakes).toBeGreaterThan(0);
    socket.wantRead(false);
    await turns();
    const before = wakes;
    await turns();
    expect(wakes).toBe(before);
  });

  test.each([
    ['empty', new Uint32Array(0), 'ERR_OUT_OF_RANGE'],
    ['half an instruction', new Uint32Array(3), 'ERR_OUT_OF_RANGE'],
    ['too long', new Uint32Array(2 * 4097), 'ERR_OUT_OF_RANGE'],
    ['without a return', Uint32Array.of(0x28, 12), 'EINVAL'],
    ['jumps out of itself', Uint32Array.of((0x15 | (9 << 24)) >>> 0, 1, 0x06, 0), 'EINVAL'],
  ])('a program that is no filter is refused: %s', (_, program, code) => {
    expect(() => socket.setFilter(program)).toThrow(expect.objectContaining({ code }));
  });

  test('wrong arguments throw', () => {
    const [slots, fragments] = [new Uint32Array(layout.TX_SLOT_WORDS), new Uint32Array(4)];
    expect(() => socket.send(slots, fragments, 0, 2, [memory])).toThrow(RangeError);
    expect(() => socket.send(slots, fragments, 2, 1, [memory])).toThrow(RangeError);
    expect(() => socket.send(slots, fragments, 0, 1, 5 as never)).toThrow(TypeError);
    expect(() => socket.receive([] as never, slots, 1)).toThrow(TypeError);
  });

  test('after close everything but stats and close throws', () => {
    socket.close();
    socket.close();
    const closed = expect.objectContaining({ code: 'ERR_ROCE_SOCKET_CLOSED' });
    expect(() => socket.setFilter(onlyType(TYPE))).toThrow(closed);
    expect(() => receive()).toThrow(closed);
    expect(() => socket.wantRead(true)).toThrow(closed);
    expect(socket.stats()).toEqual({ received: 0, dropped: 0 });
  });
});
