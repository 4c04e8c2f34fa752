/** The order of senders, seen by senders that note each of their turns. */
import { describe, expect, test } from 'vitest';
import { RegionTable, TxBatch } from './batch.ts';
import { Scheduler, type Sender, SenderTurns, Turn, TurnQueue } from './scheduler.ts';

describe('a queue of turns', () => {
  test('is first in, first out, however many wait and wherever in its memory', () => {
    const queue = new TurnQueue<number>();
    let asked = 0;
    let taken = 0;
    for (const [more, fewer] of [
      [3, 2],
      [60, 10],
      [200, 100],
      [64, 215],
      [70, 70],
      [1, 1],
    ]) {
      for (let i = 0; i < more; i++) queue.push(new Turn(asked++));
      expect(queue.length).toBe(asked - taken);
      for (let i = 0; i < fewer; i++) {
        expect(queue.first).toBe(taken);
        expect(queue.shift().owner).toBe(taken++);
      }
    }
    expect(queue.length).toBe(0);
    expect(queue.first).toBeUndefined();
  });

  test('a turn that waits is not asked for twice; one that was taken may be asked for anew', () => {
    const queue = new TurnQueue<string>();
    const turn = new Turn('a');
    queue.push(turn);
    queue.push(turn);
    expect(queue.length).toBe(1);
    expect(queue.shift()).toBe(turn);
    queue.push(turn);
    expect(queue.length).toBe(1);
  });
});

/** A log of turns, and senders with so many requests, replies and READ responses to send. */
function make(capacity = 64) {
  const scheduler = new Scheduler();
  const batch = new TxBatch(new RegionTable(), capacity, 4096);
  const log: string[] = [];
  const add = (name: string, kind: string, most: number) => {
    const count = Math.min(most, capacity - batch.count);
    batch.count += count;
    if (count > 0) log.push(`${name} ${kind} ${count}`);
    return count;
  };
  const sender = (
    name: string,
    has: {
      requests?: number;
      replies?: number;
      reads?: number;
      destroyed?: boolean;
      answersFirst?: boolean;
      dozes?: boolean;
    },
  ) => {
    const left = {
      requests: 0,
      replies: 0,
      reads: 0,
      destroyed: false,
      answersFirst: true,
      /** Asks to be woken once it has no requests. */
      dozes: false,
      turns: 0,
      ...has,
    };
    const self: Sender = {
      get destroyed() {
        return left.destroyed;
      },
      get owesReplies() {
        return left.replies + left.reads > 0;
      },
      get sleeps() {
        return left.dozes && left.requests === 0;
      },
      answersFirst: left.answersFirst,
      wantsTurn: () => scheduler.wantsTurn(turns),
      sendRequests(_batch, budget) {
        left.turns++;
        const count = add(name, 'requests', Math.min(budget, left.requests));
        left.requests -= count;
        return count;
      },
      sendReplies(_batch, budget, reads) {
        const replies = add(name, 'replies', Math.min(budget, left.replies));
        left.replies -= replies;
        const count = reads ? add(name, 'reads', Math.min(budget - replies, left.reads)) : 0;
        left.reads -= count;
        return replies + count;
      },
    };
    const turns = new SenderTurns(self);
    if (left.requests > 0) scheduler.wantsTurn(turns);
    if (left.replies + left.reads > 0) scheduler.wantsReplyTurn(turns);
    return left;
  };
  /** A batch, and the events noted meanwhile. */
  const fill = () => {
    batch.clear();
    log.length = 0;
    scheduler.fill(batch);
    return [...log];
  };
  return { scheduler, sender, fill };
}

test('nobody waits: nothing is busy, nothing is sent', () => {
  const { scheduler, fill } = make();
  expect(scheduler.busy).toBe(false);
  expect(fill()).toEqual([]);
});

test('replies of all go before requests of any', () => {
  const { scheduler, sender, fill } = make();
  sender('a', { requests: 2 });
  sender('b', { requests: 3, replies: 1 });
  sender('c', { replies: 2 });
  expect(scheduler.busy).toBe(true);
  expect(fill()).toEqual(['b replies 1', 'c replies 2', 'a requests 2', 'b requests 3']);
  expect(scheduler.busy).toBe(false);
});

test('a sender that sleeps once its requests are sent has no turn for nothing; one that still owes replies has', () => {
  const { scheduler, sender, fill } = make(256);
  const awake = sender('a', { requests: 2 });
  const asleep = sender('b', { requests: 2, dozes: true });
  const long = sender('c', { requests: 130, dozes: true });
  fill();
  expect([awake, asleep, long].map(({ requests, turns }) => [requests, turns])).toEqual([
    [0, 2],
    [0, 1],
    [0, 2],
  ]);
  const owing = sender('d', { requests: 1, reads: 200, dozes: true });
  expect(fill()).toEqual(['d requests 1', 'd reads 128', 'd reads 72']);
  expect(owing.reads).toBe(0);
  expect(scheduler.busy).toBe(false);
});

test('of one sender alone, an answer leaves before the ACK of the message that it answers', () => {
  const { sender, fill } = make();
  sender('a', { requests: 2, replies: 1 });
  expect(fill()).toEqual(['a requests 2', 'a replies 1']);
});

test('not so where the program was woken by an event', () => {
  const { sender, fill } = make();
  sender('a', { requests: 2, replies: 1, answersFirst: false });
  expect(fill()).toEqual(['a replies 1', 'a requests 2']);
});

test.each([
  ['another has requests', { requests: 1 }, ['a replies 1', 'a requests 2', 'b requests 1']],
  ['another has replies', { replies: 1 }, ['a replies 1', 'b replies 1', 'a requests 2']],
])('not so where %s', (_what, other, expected) => {
  const { sender, fill } = make();
  sender('a', { requests: 2, replies: 1 });
  sender('b', other);
  expect(fill()).toEqual(expected);
});

test('one with requests and one with replies are not one alone', () => {
  const { sender, fill } = make();
  sender('a', { requests: 2 });
  sender('b', { replies: 1 });
  expect(fill()).toEqual(['b replies 1', 'a requests 2']);
});

test('a turn has 128 requests; who has more has another turn after the others', () => {
  const { sender, fill } = make(1024);
  sender('a', { requests: 300 });
  sender('b', { requests: 130 });
  sender('c', { requests: 1 });
  expect(fill()).toEqual([
    'a requests 128',
    'b requests 128',
    'c requests 1',
    'a requests 128',
    'b requests 2',
    'a requests 44',
  ]);
});

test('a full batch keeps the turns of those that have more, in their order', () => {
  const { scheduler, sender, fill } = make(4);
  sender('a', { requests: 6 });
  sender('b', { requests: 3 });
  expect(fill()).toEqual(['a requests 4']);
  expect(scheduler.busy).toBe(true);
  expect(fill()).toEqual(['b requests 3', 'a requests 1']);
  expect(fill()).toEqual(['a requests 1']);
  expect(fill()).toEqual([]);
  expect(scheduler.busy).toBe(false);
});

test('a full batch keeps the turns of replies, too', () => {
  const { scheduler, sender, fill } = make(4);
  sender('a', { replies: 6 });
  sender('b', { replies: 1 });
  expect(fill()).toEqual(['a replies 4']);
  expect(fill()).toEqual(['b replies 1', 'a replies 2']);
  expect(scheduler.busy).toBe(false);
});

test('READ responses wait among the requests, for which they leave half of the room', () => {
  const { sender, fill } = make(16);
  sender('a', { requests: 100 });
  sender('b', { reads: 3, replies: 1 });
  sender('c', { requests: 100, reads: 50 });
  expect(fill()).toEqual(['b replies 1', 'a requests 15']);
  expect(fill()).toEqual(['c requests 8', 'c reads 8']);
  expect(fill()).toEqual(['b reads 3', 'a requests 13']);
});

test('of an odd room requests leave the smaller half', () => {
  const { sender, fill } = make(5);
  sender('a', { requests: 9, reads: 9 });
  sender('b', { requests: 9 });
  expect(fill()).toEqual(['a requests 3', 'a reads 2']);
});

test.each([
  [1, 128],
  [16, 128],
  [32, 64],
  [512, 4],
  [1000, 4],
])('with READs of %i to answer, one turn has %i responses', (count, responses) => {
  const { sender, fill } = make(8192);
  for (let i = 0; i < count; i++) sender(`${i}`, { requests: 1, reads: 200 });
  expect(fill().find((entry) => entry.includes('reads'))).toBe(`0 reads ${responses}`);
});

test('one that is destroyed has no turn, and the others have theirs', () => {
  const { scheduler, sender, fill } = make();
  const a = sender('a', { requests: 2, replies: 1 });
  sender('b', { requests: 2, replies: 1 });
  a.destroyed = true;
  expect(fill()).toEqual(['b replies 1', 'b requests 2']);
  expect(scheduler.busy).toBe(false);
});

test('one that has nothing to send leaves, and the round ends', () => {
  const { scheduler, sender, fill } = make();
  const a = sender('a', { requests: 1 });
  sender('b', { requests: 1 });
  a.requests = 0;
  expect(fill()).toEqual(['b requests 1']);
  expect(scheduler.busy).toBe(false);
});
