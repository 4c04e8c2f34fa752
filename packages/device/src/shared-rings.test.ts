/** Rings that a program writes as it likes: what the engine gets to see of them. */
import {
  BellControl,
  Control,
  Posted,
  RecvWqe,
  Ring,
  SendFlags,
  SendWqe,
  Waiting,
  WaitingThreads,
} from '@node-roce/transport';
import { afterEach, expect, test } from 'vitest';
import { SharedRings } from './shared-rings.ts';

let rings = new SharedRings();
afterEach(() => {
  rings.close();
  rings = new SharedRings();
});

const SEND_STRIDE = SendWqe.SGE + 8;

/** A queue of four entries: both sides of it, and the calls of its callbacks. */
async function queue(kind: 'send' | 'receive', stride = SEND_STRIDE) {
  const [engine, [made]] = await rings.during(async () => rings.work(4, stride));
  const said: string[] = [];
  const taken = rings.open(
    kind,
    made,
    () => said.push('ring'),
    () => said.push('refuse'),
  );
  const { offset } = taken.shape;
  const program = new Ring({ buffer: rings.arena.buffer, byteOffset: offset, capacity: 4, stride });
  return { engine, program, taken, said };
}

/** The program's side of the doorbells. */
function bells(): Ring {
  const { offset, capacity, stride } = rings.doorbells;
  return new Ring({ buffer: rings.arena.buffer, byteOffset: offset, capacity, stride });
}

test('an entry of the program is the engine’s, with what its elements need', async () => {
  const { engine, program, taken, said } = await queue('send');
  engine.sleep(0);
  const w = program.wordOf(0);
  for (let i = 0; i < SEND_STRIDE; i++) program.words[w + i] = 1000 + i;
  program.words[w + SendWqe.OPCODE_FLAGS] = 2;
  program.words[w + SendWqe.SGE_COUNT] = 1;
  program.publish(1);
  expect(program.wake()).toBe(true);
  taken.take();
  expect(said).toEqual(['ring']);
  expect(engine.end(0)).toBe(1);
  const e = engine.wordOf(0);
  expect(engine.words[e + SendWqe.WR_ID_LOW]).toBe(1000 + SendWqe.WR_ID_LOW);
  expect(engine.words[e + SendWqe.SGE + 3]).toBe(1000 + SendWqe.SGE + 3);
  expect(engine.words[e + SendWqe.SGE + 4]).toBe(0);
  // It asks for a doorbell again.
  program.publish(2);
  expect(program.wake()).toBe(true);
});

test.each([
  ['elements', 'send', SendWqe.SGE_COUNT, 0],
  ['inline data', 'send', SendWqe.LENGTH, SendFlags.INLINE << 8],
  ['elements of a receive', 'receive', RecvWqe.SGE_COUNT, 0],
] as const)('copies no more %s than an entry has room for', async (_, kind, word, flags) => {
  const { engine, program, taken, said } = await queue(kind);
  program.words.fill(7, program.wordOf(0));
  for (const index of [0, 3]) {
    if (kind === 'send') program.words[program.wordOf(index) + SendWqe.OPCODE_FLAGS] = flags;
    program.words[program.wordOf(index) + word] = 0xffff_ffff;
  }
  program.publish(1);
  taken.take();
  // The next entry is as it was.
  expect(engine.words.subarray(engine.wordOf(1), engine.wordOf(2)).every((it) => it === 0)).toBe(true);
  program.publish(4);
  taken.take();
  expect(engine.used).toBe(4);
  expect(said).toEqual([]);
});

test('shows the program what the engine has given back, and its state, and believes neither', async () => {
  const { engine, program, taken, said } = await queue('send');
  engine.state = 3;
  expect(program.state).toBe(3);
  program.publish(4);
  taken.take();
  engine.release(2);
  expect(program.consumer).toBe(2);
  program.words[Control.CONSUMER] = 77;
  program.words[Control.STATE] = 0;
  expect([engine.consumer, engine.state]).toEqual([2, 3]);
  program.publish(6);
  taken.take();
  expect(engine.used).toBe(4);
  expect(said).toEqual([]);
});

test('refuses a program that publishes more than there is room for', async () => {
  const { engine, program, taken, said } = await queue('send');
  program.publish(4);
  taken.take();
  program.publish(6);
  taken.take();
  expect(said).toEqual(['refuse']);
  expect(engine.used).toBe(4);
});

test('takes nothing where the count can’t be', async () => {
  const { engine, program, taken } = await queue('send');
  for (const count of [5, -1, 0x7fff_ffff]) {
    program.publish(count);
    taken.take();
    expect(engine.used).toBe(0);
  }
});

test('a doorbell names a queue; one that names none is nothing, and of a count that can’t be all queues are looked at', async () => {
  const [a, b] = [await queue('send'), await queue('receive')];
  const doorbells = bells();
  expect(rings.sleep()).toBe(false);
  a.program.publish(1);
  b.program.publish(1);
  doorbells.words[doorbells.wordOf(0)] = 0xffff_ffff;
  doorbells.words[doorbells.wordOf(1)] = b.taken.id;
  doorbells.publish(2);
  expect(doorbells.wake()).toBe(true);
  rings.take();
  expect([a.engine.used, b.engine.used]).toEqual([0, 1]);
  doorbells.publish(-9);
  expect(rings.sleep()).toBe(false);
  rings.take();
  expect([a.engine.used, b.engine.used]).toEqual([1, 1]);
  // From there it goes on.
  a.program.publish(2);
  doorbells.words[doorbells.wordOf(-9)] = a.taken.id;
  doorbells.publish(-8);
  expect(rings.sleep()).toBe(true);
  rings.take();
  expect(a.engine.used).toBe(2);
});

test('a queue that is closed is not looked at, and its number is used again', async () => {
  const a = await queue('send');
  rings.closeQueue(a.taken);
  a.program.publish(1);
  const doorbells = bells();
  doorbells.words[doorbells.wordOf(0)] = a.taken.id;
  doorbells.publish(1);
  rings.take();
  expect(a.engine.used).toBe(0);
  expect((await queue('receive')).taken.id).toBe(a.taken.id);
});

test('rings of a call that fails are free again', async () => {
  const offsets = new Set<number>();
  for (let i = 0; i < 100; i++) {
    const failing = rings.during(async () => {
      rings.work(4, SEND_STRIDE);
      rings.completions(1 << 20, 12);
      throw new Error('refused');
    });
    await expect(failing).rejects.toThrow('refused');
    const [, [made]] = await rings.during(async () => rings.completions(4, 12));
    offsets.add(made.offset);
    rings.free([made.offset]);
  }
  expect(offsets.size).toBe(1);
});

test('the doorbells distinguish posted requests from receives', async () => {
  const [send, receive] = [await queue('send'), await queue('receive', RecvWqe.SGE + 4)];
  const program = bells();
  const ring = ({ taken, program: posts }: typeof send) => {
    posts.publish(posts.producer + 1);
    program.words[program.wordOf(program.producer)] = taken.id;
    program.publish(program.producer + 1);
  };
  expect(rings.take()).toBe(Posted.NOTHING);
  ring(receive);
  expect(rings.take()).toBe(Posted.RECEIVES);
  ring(receive);
  ring(send);
  expect(rings.take()).toBe(Posted.SENDS);
});

test('a thread of the program that waits is woken once something has completed', async () => {
  const [completions] = await rings.during(async () => rings.completions(4, SEND_STRIDE));
  const { words } = bells();
  words[BellControl.WAITING] = WaitingThreads.SHARING;
  expect(rings.turned(1000)).toBe(Waiting.SLEEPING);
  expect([words[BellControl.WAITING], words[BellControl.TURNS]]).toEqual([WaitingThreads.SHARING, 0]);
  completions.publish(1);
  expect(rings.turned(1010)).toBe(Waiting.WOKEN);
  expect([words[BellControl.WAITING], words[BellControl.TURNS]]).toEqual([WaitingThreads.NONE, 1]);
  expect(words[BellControl.PROCESSOR]).toBeGreaterThan(0);
  expect(rings.turned(1020)).toBe(Waiting.NOBODY);
  expect(words[BellControl.TURNS]).toBe(1);
});

test('one that waits in vain is woken after 0.2 ms, each time anew, and before the device sleeps', () => {
  const { words } = bells();
  const wokenAt = (...times: number[]) =>
    times.filter((now) => {
      words[BellControl.WAITING] = WaitingThreads.SHARING;
      const is = rings.turned(now);
      expect(is).toBe(words[BellControl.WAITING] === WaitingThreads.NONE ? Waiting.WOKEN : Waiting.SLEEPING);
      return is === Waiting.WOKEN;
    });
  expect(wokenAt(1000, 1199, 1200, 1300, 1450, 1500, 1510)).toEqual([1200, 1500]);
  // The next one waits since it came, not since the one before did.
  words[BellControl.WAITING] = WaitingThreads.NONE;
  rings.turned(1600);
  expect(wokenAt(1750, 1949, 1950)).toEqual([1950]);
  // One on a processor of its own leaves none free.
  words[BellControl.WAITING] = WaitingThreads.APART;
  expect(rings.turned(2000)).toBe(Waiting.NOBODY);
  rings.sleep();
  expect([words[BellControl.WAITING], words[BellControl.TURNS]]).toEqual([WaitingThreads.NONE, 4]);
  rings.sleep();
  expect(words[BellControl.TURNS]).toBe(4);
});
