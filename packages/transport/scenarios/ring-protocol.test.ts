/** The protocol of the shared queues: indices that wrap, doorbells, and requests for completion events (ibv_req_notify_cq(3)). */
import { describe, expect, test } from 'vitest';
import {
  CONTROL_WORDS,
  Control,
  createRing,
  powerOfTwo,
  Ring,
  recvStride,
  sendStride,
} from '../src/rings.ts';

describe.each([true, false])('shared with another thread: %s', (shared) => {
  /** Both sides of a ring whose counts begin at `start`. */
  function make(entries = 4, start = 0) {
    const shape = createRing(entries, 3, shared);
    const producer = new Ring(shape);
    const consumer = new Ring(shape);
    producer.publish(start);
    consumer.releaseAll();
    return { shape, producer, consumer };
  }

  test.each([
    [0, 1],
    [1, 1],
    [2, 2],
    [3, 4],
    [4, 4],
    [5, 8],
    [1 << 20, 1 << 20],
    [(1 << 20) + 1, 1 << 21],
  ])('room for %i entries: %i', (entries, capacity) => {
    expect(powerOfTwo(entries)).toBe(capacity);
    expect(createRing(Math.min(entries, 1000), 1, shared).capacity).toBe(powerOfTwo(Math.min(entries, 1000)));
  });

  test('entries follow one another behind the control page, and begin again at the end', () => {
    const { shape, producer } = make(4);
    expect(shape.buffer.byteLength).toBe((CONTROL_WORDS + 4 * 3) * 4);
    expect([0, 1, 3, 4, -1].map((i) => producer.wordOf(i) - CONTROL_WORDS)).toEqual([0, 3, 9, 0, 9]);
    expect(producer.words.length).toBe(CONTROL_WORDS + 12);
    expect(producer.bytes.length).toBe(producer.words.length * 4);
  });

  test('an entry has room for its list, or for the inline data in its place, in whole elements', () => {
    expect([sendStride(1, 0), sendStride(4, 64), sendStride(4, 65), sendStride(0, 1)]).toEqual([
      20, 32, 36, 20,
    ]);
    expect([recvStride(0), recvStride(1), recvStride(4)]).toEqual([4, 8, 20]);
  });

  test('both sides see the state', () => {
    const { producer, consumer } = make();
    consumer.state = 3;
    expect(producer.state).toBe(3);
  });

  describe.each([0, 1, 0x7fff_fffe, -2])('with counts from %i on', (start) => {
    const after = (count: number) => (start + count) | 0;

    test('the consumer has the published entries that were not given back', () => {
      const { producer, consumer } = make(4, start);
      expect(consumer.has(start)).toBe(false);
      expect(consumer.end(start)).toBe(start);
      producer.publish(after(3));
      expect(consumer.end(start)).toBe(after(3));
      expect([0, 1, 2, 3].map((i) => consumer.has(after(i)))).toEqual([true, true, true, false]);
      expect(producer.used).toBe(3);
      consumer.release(after(2));
      expect(producer.used).toBe(1);
      producer.publish(after(6));
      expect([2, 5, 6].map((i) => consumer.has(after(i)))).toEqual([true, true, false]);
    });

    test('the producer has room for as many as it asks for, until they are given back', () => {
      const { producer, consumer } = make(4, start);
      expect([0, 2, 3, 4, 5].map((i) => producer.hasRoom(after(i), 3))).toEqual([
        true,
        true,
        false,
        false,
        false,
      ]);
      consumer.release(after(2));
      expect([2, 4, 5].map((i) => producer.hasRoom(after(i), 3))).toEqual([true, true, false]);
    });

    test('a producer that is more than the ring ahead, or behind, has published nothing', () => {
      const { producer, consumer } = make(4, start);
      for (const count of [5, 1 << 20, -1]) {
        producer.publish(after(count));
        expect(consumer.end(start)).toBe(start);
        expect(consumer.has(start)).toBe(false);
      }
      producer.publish(after(4));
      expect(consumer.end(start)).toBe(after(4));
      expect(consumer.has(after(3))).toBe(true);
    });

    test('entries that are released at once are published no more', () => {
      const { producer, consumer } = make(4, start);
      producer.publish(after(3));
      expect(consumer.releaseAll()).toBe(after(3));
      expect(consumer.consumer).toBe(after(3));
      expect(consumer.has(after(3))).toBe(false);
      expect(producer.used).toBe(0);
    });

    test('one doorbell for each time that the consumer sleeps', () => {
      const { producer, consumer } = make(4, start);
      expect(producer.wake()).toBe(false);
      expect(consumer.sleep(start)).toBe(false);
      producer.publish(after(1));
      expect(producer.wake()).toBe(true);
      expect(producer.wake()).toBe(false);
    });

    test('a consumer that finds an entry does not sleep, and no doorbell rings', () => {
      const { producer, consumer } = make(4, start);
      producer.publish(after(1));
      expect(consumer.sleep(start)).toBe(true);
      expect(producer.wake()).toBe(false);
    });

    test('of a consumer that goes to sleep and a producer that rings at once, one sees the entry', () => {
      const { shape, producer, consumer } = make(4, start);
      const control = new Int32Array(shape.buffer);
      producer.publish(after(1));
      // The producer rings after the consumer has set the flag, and before that looks at the producer's count.
      Object.defineProperty(consumer, 'producer', {
        get() {
          expect(producer.wake()).toBe(true);
          return after(1);
        },
      });
      expect(consumer.sleep(start)).toBe(false);
      expect(control[Control.SLEEPING]).toBe(0);
    });
  });

  describe('an event is asked for', () => {
    test('not at all: there is none', () => {
      const { consumer } = make();
      expect([consumer.disarm(false), consumer.disarm(true)]).toEqual([false, false]);
    });

    test('for any completion: the next one raises it, once', () => {
      for (const solicited of [false, true]) {
        const { producer, consumer } = make();
        consumer.arm(1);
        expect(producer.disarm(solicited)).toBe(true);
        expect(producer.disarm(true)).toBe(false);
      }
    });

    test('for solicited ones: no other raises it', () => {
      const { producer, consumer } = make();
      consumer.arm(2);
      expect(producer.disarm(false)).toBe(false);
      expect(producer.disarm(true)).toBe(true);
      expect(producer.disarm(true)).toBe(false);
    });

    test('twice: the wider request holds', () => {
      for (const [first, second] of [
        [1, 2],
        [2, 1],
      ] as const) {
        const { producer, consumer } = make();
        consumer.arm(first);
        consumer.arm(second);
        expect(producer.disarm(false)).toBe(true);
        expect(producer.disarm(true)).toBe(false);
      }
    });
  });
});
