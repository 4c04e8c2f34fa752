/** Replies that a responder owes, in the order in which they leave (IBTA vol 1 §9.7.5.1.3), and changes to them while they wait. */
import { NakCode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import type { MemoryRegion } from '../region.ts';
import type { RemoteTarget } from './remote-target.ts';
import { ReplyKind, ReplyQueue } from './replies.ts';

const MTU = 1024;
const FATAL = NakCode.REMOTE_ACCESS_ERROR;
const SEQUENCE = NakCode.PSN_SEQUENCE_ERROR;
const region = { name: 'a region' } as unknown as MemoryRegion;
const target = (offset = 0) => ({ region, offset }) as RemoteTarget;

/** Everything that waits, in order; the queue is empty afterwards. */
function drain(replies: ReplyQueue): unknown[] {
  const all: unknown[] = [];
  while (replies.count > 0) {
    expect(replies.fault(1000)).toBeUndefined();
    const { kind, psn, msn, packets, length, offset } = replies;
    if (kind === ReplyKind.ACK) all.push(['ACK', psn, msn]);
    if (kind === ReplyKind.NAK) all.push(['NAK', psn, msn, replies.syndrome]);
    if (kind === ReplyKind.ATOMIC) all.push(['ATOMIC', psn, msn, replies.valueHigh, replies.valueLow]);
    if (kind === ReplyKind.READ) {
      expect(replies.region).toBe(region);
      all.push(['READ', psn, msn, length, packets, offset]);
      for (let i = 0; i < packets; i++) {
        expect([replies.kind, replies.sent]).toEqual([ReplyKind.READ, i]);
        replies.responded(1);
      }
    } else {
      expect(replies.region).toBeUndefined();
      replies.shift();
    }
  }
  expect([replies.pending, replies.duplicates]).toEqual([0, 0]);
  return all;
}

function read(replies: ReplyQueue, psn: number, packets: number, duplicate = false): void {
  replies.pushRead(psn, psn, target(psn * 10), packets * MTU - 24, packets, duplicate);
}

test('replies leave in the order in which they were owed', () => {
  const replies = new ReplyQueue();
  replies.acknowledge(1, 11);
  read(replies, 2, 3);
  replies.pushAtomic(5, 12, 7, 8, false);
  replies.acknowledge(6, 13);
  replies.pushNak(7, 14, SEQUENCE);
  expect([replies.count, replies.pending, replies.duplicates]).toEqual([5, 2, 0]);
  expect(drain(replies)).toEqual([
    ['ACK', 1, 11],
    ['READ', 2, 2, 3 * MTU - 24, 3, 20],
    ['ATOMIC', 5, 12, 7, 8],
    ['ACK', 6, 13],
    ['NAK', 7, 14, SEQUENCE],
  ]);
});

test('the order stays however many wait, and wherever the ring begins', () => {
  const replies = new ReplyQueue();
  let pushed = 0;
  let taken = 0;
  for (const [more, fewer] of [
    [5, 4],
    [7, 0],
    [3, 9],
    [40, 20],
    [30, 52],
  ]) {
    for (let i = 0; i < more; i++, pushed++) {
      if (pushed % 3 === 0) replies.pushRead(pushed, 1, target(pushed), MTU, 1, false);
      else replies.pushAtomic(pushed, 1, pushed, -pushed >>> 0, pushed % 3 === 1);
      expect(replies.fault(1000)).toBeUndefined();
    }
    expect(replies.count).toBe(pushed - taken);
    for (let i = 0; i < fewer; i++, taken++) {
      expect(replies.psn).toBe(taken);
      if (taken % 3 === 0) {
        expect([replies.region, replies.offset]).toEqual([region, taken]);
        replies.responded(1);
      } else {
        expect([replies.region, replies.valueHigh, replies.valueLow]).toEqual([
          undefined,
          taken,
          -taken >>> 0,
        ]);
        replies.shift();
      }
      expect(replies.fault(1000)).toBeUndefined();
    }
  }
  expect([pushed, taken, replies.count]).toEqual([85, 85, 0]);
});

describe('ACKs', () => {
  test('that follow one another are one: the last PSN, and the MSN of now', () => {
    const replies = new ReplyQueue();
    replies.acknowledge(0xff_ffff, 1);
    replies.acknowledge(1, 2);
    replies.acknowledge(0, 3); // A duplicate is acknowledged again.
    expect(drain(replies)).toEqual([['ACK', 1, 3]]);
  });

  test('stay behind earlier replies', () => {
    const replies = new ReplyQueue();
    replies.acknowledge(1, 1);
    replies.pushAtomic(2, 2, 0, 0, false);
    replies.acknowledge(3, 3);
    replies.acknowledge(4, 4);
    expect(drain(replies).map((reply) => (reply as unknown[])[1])).toEqual([1, 2, 4]);
  });
});

describe('a NAK', () => {
  test.each([
    ['is the last', 0],
    ['has replies behind it', 3],
  ])('that is dropped %s: the rest stays in order', (_, behind) => {
    const replies = new ReplyQueue();
    // So that the ring wraps inside of them.
    for (let i = 0; i < 4; i++) replies.pushAtomic(0, 0, 0, 0, false);
    for (let i = 0; i < 4; i++) replies.shift();
    replies.acknowledge(1, 1);
    read(replies, 2, 2);
    replies.pushNak(4, 4, SEQUENCE);
    for (let i = 0; i < behind; i++) read(replies, 4 + i, 1, true);
    replies.dropNak();
    expect(drain(replies).map((reply) => (reply as unknown[]).slice(0, 2))).toEqual([
      ['ACK', 1],
      ['READ', 2],
      ...Array.from({ length: behind }, (_, i) => ['READ', 4 + i]),
    ]);
  });

  test('that left already is not dropped twice', () => {
    const replies = new ReplyQueue();
    replies.dropNak();
    replies.acknowledge(1, 1);
    replies.dropNak();
    expect(drain(replies)).toEqual([['ACK', 1, 1]]);
  });

  test.each([
    [SEQUENCE, false],
    [0x21, false],
    [NakCode.INVALID_REQUEST, true],
    [FATAL, true],
  ])('of syndrome %i ends the connection: %s', (syndrome, dying) => {
    const replies = new ReplyQueue();
    expect(replies.dying).toBe(false);
    replies.acknowledge(1, 1);
    expect(replies.dying).toBe(false);
    replies.pushNak(2, 2, syndrome);
    expect(replies.dying).toBe(dying);
  });
});

describe('duplicates', () => {
  test('of an atomic whose result waits are known by their PSN', () => {
    const replies = new ReplyQueue();
    read(replies, 1, 1);
    replies.pushAtomic(2, 1, 0, 0, false);
    replies.acknowledge(3, 1);
    expect([1, 2, 3].map((psn) => replies.answersAtomic(psn))).toEqual([false, true, false]);
    replies.responded(1);
    replies.shift();
    expect(replies.answersAtomic(2)).toBe(false);
  });

  test('of a READ that waits whole, and of its rest, are answered by it', () => {
    const replies = new ReplyQueue();
    replies.acknowledge(9, 1);
    read(replies, 10, 4);
    expect(replies.resumeRead(10, 4, MTU)).toBe(true);
    expect(replies.resumeRead(12, 2, MTU)).toBe(true);
    // Another end, or another begin.
    expect(replies.resumeRead(10, 3, MTU)).toBe(false);
    expect(replies.resumeRead(9, 5, MTU)).toBe(false);
    expect(drain(replies)).toEqual([
      ['ACK', 9, 1],
      ['READ', 10, 10, 4 * MTU - 24, 4, 100],
    ]);
  });

  test.each([
    [1, 10, ['READ', 10, 10, 4 * MTU - 24, 4, 100]],
    [3, 11, ['READ', 11, 10, 3 * MTU - 24, 3, 100 + MTU]],
    [3, 12, ['READ', 12, 10, 2 * MTU - 24, 2, 100 + 2 * MTU]],
  ])('of a READ of which %i responses left begin anew at PSN %i (§9.4.4)', (sent, psn, wanted) => {
    const replies = new ReplyQueue();
    read(replies, 10, 4);
    for (let i = 0; i < sent; i++) replies.responded(1);
    expect(replies.resumeRead(psn, 14 - psn, MTU)).toBe(true);
    expect(drain(replies)).toEqual([wanted]);
  });

  test('of a READ from a response on that is still to come change nothing', () => {
    const replies = new ReplyQueue();
    read(replies, 10, 4);
    replies.responded(1);
    expect(replies.resumeRead(11, 3, MTU)).toBe(true);
    expect([replies.psn, replies.sent, replies.packets]).toEqual([10, 1, 4]);
  });

  test('are counted apart from first answers', () => {
    const replies = new ReplyQueue();
    read(replies, 1, 1);
    read(replies, 1, 1, true);
    replies.pushAtomic(2, 1, 0, 0, true);
    expect([replies.pending, replies.duplicates]).toEqual([1, 2]);
    expect(replies.fault(2)).toBeUndefined();
    expect(replies.fault(1)).toBe('1 answers and 2 repeated ones wait for 1 resources');
  });
});

describe('dropping the READs drops', () => {
  test('the first one that was not answered yet, and all behind it', () => {
    const replies = new ReplyQueue();
    replies.acknowledge(1, 1);
    replies.pushAtomic(2, 2, 3, 4, true);
    read(replies, 3, 2);
    replies.pushAtomic(5, 1, 0, 0, false);
    read(replies, 6, 1, true);
    replies.acknowledge(7, 1);
    replies.dropReads();
    expect([replies.count, replies.pending, replies.duplicates]).toEqual([2, 0, 1]);
    expect(drain(replies)).toEqual([
      ['ACK', 1, 1],
      ['ATOMIC', 2, 2, 3, 4],
    ]);
  });

  test('is a duplicate by itself: the ACK behind it is owed', () => {
    const replies = new ReplyQueue();
    // Across the end of the ring.
    for (let i = 0; i < 5; i++) replies.acknowledge(i, i);
    replies.shift();
    read(replies, 0, 2, true);
    replies.acknowledge(3, 1);
    read(replies, 1, 1, true);
    replies.pushAtomic(5, 2, 0, 0, false);
    replies.acknowledge(6, 2);
    replies.responded(1);
    replies.dropReads();
    expect([replies.count, replies.pending, replies.duplicates]).toEqual([3, 1, 0]);
    expect(drain(replies)).toEqual([
      ['ACK', 3, 1],
      ['ATOMIC', 5, 2, 0, 0],
      ['ACK', 6, 2],
    ]);
  });

  test('is nothing without a READ', () => {
    const replies = new ReplyQueue();
    replies.pushAtomic(2, 2, 3, 4, false);
    replies.pushNak(3, 3, FATAL);
    replies.dropReads();
    expect(replies.count).toBe(2);
  });
});

test('RESET forgets replies, duplicates and regions', () => {
  const replies = new ReplyQueue();
  read(replies, 1, 1);
  read(replies, 1, 1, true);
  replies.clear();
  expect([replies.count, replies.pending, replies.duplicates, replies.region]).toEqual([0, 0, 0, undefined]);
  replies.acknowledge(2, 2);
  expect(drain(replies)).toEqual([['ACK', 2, 2]]);
});

describe('the check sees', () => {
  test('two NAKs that wait', () => {
    const replies = new ReplyQueue();
    replies.pushNak(1, 1, SEQUENCE);
    expect(replies.fault(0)).toBeUndefined();
    replies.pushNak(2, 2, 0x21);
    expect(replies.fault(0)).toBe('two NAKs wait');
  });

  test('replies behind the end of the connection', () => {
    const replies = new ReplyQueue();
    replies.pushNak(1, 1, FATAL);
    expect(replies.fault(0)).toBeUndefined();
    replies.acknowledge(2, 2);
    expect(replies.fault(0)).toBe('replies wait behind the NAK that ends the connection');
  });

  test('more answers than resources', () => {
    const replies = new ReplyQueue();
    replies.pushAtomic(1, 1, 0, 0, false);
    expect(replies.fault(1)).toBeUndefined();
    expect(replies.fault(0)).toBe('1 answers and 0 repeated ones wait for 0 resources');
  });

  test('a READ without responses that are left', () => {
    const replies = new ReplyQueue();
    read(replies, 1, 0);
    expect(replies.fault(1)).toBe('a READ waits whose responses have left');
  });
});
