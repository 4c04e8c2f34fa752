/** Rings in shared memory and in memory of one thread: the same answers. */
import { describe, expect, test } from 'vitest';
import { CONTROL_WORDS, Control, createRing, Ring } from './rings.ts';

describe.each([{ shared: true }, { shared: false }])('shared: $shared', ({ shared }) => {
  const sides = (entries: number) => {
    const shape = createRing(entries, 1, shared);
    return { shape, producer: new Ring(shape), consumer: new Ring(shape) };
  };

  test('the memory is shared only if asked for', () => {
    expect(sides(4).shape.buffer instanceof SharedArrayBuffer).toBe(shared);
  });

  test('counts run on past 2^31 and 2^32', () => {
    for (const start of [0, 0x7fff_fffe, -7]) {
      const { producer, consumer } = sides(4);
      producer.publish(start | 0);
      consumer.release(start | 0);
      let at = start | 0;
      for (let round = 0; round < 10; round++) {
        expect(producer.hasRoom(at, 4)).toBe(true);
        producer.words[producer.wordOf(at)] = round;
        expect(consumer.has(at)).toBe(false);
        producer.publish((at + 1) | 0);
        expect(consumer.has(at)).toBe(true);
        expect([producer.used, consumer.used]).toEqual([1, 1]);
        expect(consumer.words[consumer.wordOf(at)]).toBe(round);
        at = (at + 1) | 0;
        consumer.release(at);
      }
      expect([producer.producer, producer.consumer]).toEqual([at, at]);
    }
  });

  test('a full ring has no room until an entry is given back', () => {
    const { producer, consumer } = sides(2);
    producer.publish(2);
    expect(producer.hasRoom(2, 2)).toBe(false);
    consumer.release(1);
    expect(producer.hasRoom(2, 2)).toBe(true);
  });

  test('the producer rings once for a consumer that sleeps', () => {
    const { producer, consumer } = sides(2);
    expect(producer.wake()).toBe(false);
    expect(consumer.sleep(0)).toBe(false);
    producer.publish(1);
    expect([producer.wake(), producer.wake()]).toEqual([true, false]);
    expect(consumer.sleep(0)).toBe(true);
  });

  test('a notification for solicited completions waits for one', () => {
    const { producer, consumer } = sides(2);
    consumer.arm(2);
    expect(producer.disarm(false)).toBe(false);
    expect([producer.disarm(true), producer.disarm(true)]).toEqual([true, false]);
  });

  test('bytes and words are the same memory', () => {
    const { producer, consumer } = sides(2);
    producer.bytes.set([1, 0, 0, 0], 4 * producer.wordOf(1));
    expect(consumer.words[consumer.wordOf(1)]).toBe(1);
  });
});

test('a ring may begin anywhere in a buffer, and keeps to its part of it', () => {
  const bytes = (CONTROL_WORDS + 4) * 4;
  const buffer = new SharedArrayBuffer(3 * bytes);
  const ring = new Ring({ buffer, byteOffset: bytes, capacity: 4, stride: 1 });
  expect([ring.words.length, ring.bytes.length]).toEqual([bytes / 4, bytes]);
  for (let i = 0; i < 4; i++) ring.words[ring.wordOf(i)] = 0xffff_ffff;
  ring.publish(4);
  const words = new Uint32Array(buffer);
  const outside = [...words.subarray(0, bytes / 4), ...words.subarray((2 * bytes) / 4)];
  expect(outside.every((word) => word === 0)).toBe(true);
  expect(words[bytes / 4 + Control.PRODUCER]).toBe(4);
});

test('a mirror shows the state and the consumer’s count, and is never read', () => {
  const mirror = new Uint32Array(new SharedArrayBuffer(CONTROL_WORDS * 4));
  const ring = new Ring({ ...createRing(4, 1, false), mirror });
  ring.publish(3);
  ring.state = 6;
  ring.release(2);
  expect([mirror[Control.STATE], mirror[Control.CONSUMER], mirror[Control.PRODUCER]]).toEqual([6, 2, 0]);
  mirror.fill(99);
  expect([ring.state, ring.producer, ring.consumer, ring.sleep(3)]).toEqual([6, 3, 2, false]);
  ring.releaseAll();
  expect(mirror[Control.CONSUMER]).toBe(3);
});
