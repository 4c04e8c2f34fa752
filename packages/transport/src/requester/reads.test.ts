/** READs and atomics in flight, and the budget of receive buffer that all queue pairs share: what may be asked for, and who is next. */
import { psnAdd } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { OutstandingReads, ReadBudget } from './reads.ts';

const MTU = 1024;
/** Bytes of the budget that a response takes at this path MTU; a request asks for at most half of the budget. */
const CHARGE = 2 * MTU + 512;
const CHUNK = 10;
const TOTAL = 2 * CHUNK * CHARGE;
const WIDE = 1000;

function setUp(count = 1, total = TOTAL) {
  const budget = new ReadBudget(total);
  const woken: number[] = [];
  const users = Array.from({ length: count }, (_, i) => {
    const reads = new OutstandingReads(budget, { wantsTurn: () => woken.push(i) });
    reads.setPathMtu(MTU);
    return reads;
  });
  const settled = () => {
    const held = users.reduce((sum, reads) => sum + reads.held, 0);
    expect(held + budget.left).toBe(total);
    for (const reads of users) expect(reads.check()).toBeUndefined();
  };
  return { budget, users, woken, settled };
}

describe('a READ is split', () => {
  test('at multiples of the same count, wherever it is resumed', () => {
    const [reads] = setUp().users;
    const packets = 34;
    expect([0, 1, 9, 10, 19, 20, 29, 30, 33].map((at) => reads.next(at, at, packets, false))).toEqual([
      10, 9, 1, 10, 1, 10, 1, 4, 1,
    ]);
    expect([1, 10, 11, 20, 34].map((responses) => reads.requestsFor(responses, false))).toEqual([
      1, 1, 2, 2, 4,
    ]);
  });

  test.each([
    ['no budget', 0, 1],
    ['budget for two responses', 2 * CHARGE, 1],
    ['budget for four', 4 * CHARGE, 2],
    ['budget for 128', 128 * CHARGE, 64],
    ['budget for 1,000', 1000 * CHARGE, 64],
  ])('with %s: two requests fit, of at most 64 responses', (_, total, chunk) => {
    const [reads] = setUp(1, total).users;
    expect(reads.next(0, 0, 10_000, false)).toBe(chunk);
  });

  test.each([
    ['no budget', 0, 1],
    ['budget for 511', 511 * CHARGE, 64],
    ['budget for 512', 512 * CHARGE, 256],
    ['budget for 1,000', 1000 * CHARGE, 256],
  ])('with %s: large requests are for 256 where two of them fit', (_, total, large) => {
    const [reads] = setUp(1, total).users;
    expect(reads.next(0, 0, 10_000, true)).toBe(large);
    expect(reads.startsLarge(10_000, WIDE)).toBe(large === 256);
  });

  test('into large requests where the window has room for two of them, and more than a small one is needed', () => {
    const [reads] = setUp(1, WIDE * CHARGE).users;
    expect(reads.startsLarge(65, 512)).toBe(true);
    expect(reads.startsLarge(64, 512)).toBe(false);
    expect(reads.startsLarge(65, 511)).toBe(false);
  });

  test('into small requests while a READ waits for the budget', () => {
    const { users } = setUp(2, 512 * CHARGE);
    const [a, b] = users;
    a.ask(0, 511);
    expect(a.startsLarge(512, WIDE)).toBe(true);
    b.awaitRoom(64, WIDE);
    expect(a.startsLarge(512, WIDE)).toBe(false);
    a.receivedRun(64);
    expect(b.isWaiting).toBe(false);
    expect(a.startsLarge(512, WIDE)).toBe(true);
  });

  test('into large requests at multiples of their size', () => {
    const [reads] = setUp(1, WIDE * CHARGE).users;
    expect([0, 1, 63, 64, 255, 256, 511, 512, 599].map((at) => reads.next(at, at, 600, true))).toEqual([
      256, 255, 193, 192, 1, 256, 1, 88, 1,
    ]);
    expect([1, 64, 256, 257, 600].map((responses) => reads.requestsFor(responses, true))).toEqual([
      1, 1, 1, 2, 3,
    ]);
    reads.ask(0, 255);
    expect([0, 1, 254, 255].map((at) => reads.middles(at, 600, true, WIDE))).toEqual([255, 254, 1, 0]);
    for (const at of [63, 127, 191, 255, 319, 511, 599])
      expect(reads.endsRight(at, at, 600, true, true)).toBe(at === 255 || at >= 511);
  });

  test('anew after the path MTU changed, and what was asked for is given back', () => {
    const { budget, users, settled } = setUp();
    users[0].ask(0, 9);
    users[0].setPathMtu(4096);
    expect(users[0].next(0, 0, 100, false)).toBe(Math.floor(TOTAL / 2 / (2 * 4096 + 512)));
    expect(budget.left).toBe(TOTAL);
    settled();
  });
});

describe('requests in flight', () => {
  test.each([1, 2, 16, 128])('are at most max_rd_atomic %i', (most) => {
    const [reads] = setUp().users;
    let count = 0;
    for (; reads.mayRequest(most); count++) reads.list.add(count, count);
    expect(count).toBe(most);
    reads.retire(1);
    expect(reads.list.count).toBe(most - 1);
    expect(reads.mayRequest(most)).toBe(true);
  });

  test('one is, even if max_rd_atomic was lowered to 0: what was started ends', () => {
    const [reads] = setUp().users;
    expect(reads.mayRequest(0)).toBe(true);
    reads.list.add(0, 0);
    expect(reads.mayRequest(0)).toBe(false);
  });

  test('end in order, each with its last PSN, across the wrap of PSNs and of the ring', () => {
    const [reads] = setUp().users;
    const first = 0xff_ff00;
    for (let i = 0; i < 600; i++) {
      const psn = psnAdd(first, i);
      reads.list.add(psn, psn);
      reads.list.add(psnAdd(psn, 1), psnAdd(psn, 1));
      expect(reads.list.oldestLast).toBe(psn);
      reads.retire(psn);
      expect(reads.list.count).toBe(2);
      reads.retire(psnAdd(psn, 1));
      expect(reads.list.count).toBe(1);
      reads.retire(psnAdd(psn, 2));
      expect(reads.list.count).toBe(0);
    }
  });

  test('several are retired at once', () => {
    const [reads] = setUp().users;
    for (const psn of [3, 4, 9]) reads.list.add(psn, psn);
    reads.retire(9);
    expect(reads.list.count).toBe(1);
    expect(reads.list.oldestLast).toBe(9);
  });
});

describe('responses in flight', () => {
  test('are counted down as they come, and no further', () => {
    const { users, settled } = setUp();
    const [reads] = users;
    reads.ask(0, 2);
    expect(reads.responses).toBe(3);
    for (const left of [2, 1, 0, 0]) {
      reads.received();
      expect(reads.responses).toBe(left);
      settled();
    }
  });

  test('are two requests at least, and beyond them no more than the window', () => {
    const [reads] = setUp(1, 100 * TOTAL).users;
    const chunk = reads.next(0, 0, WIDE, false);
    expect(reads.awaitRoom(chunk, 2)).toBe(true);
    reads.ask(0, chunk - 1);
    expect(reads.awaitRoom(chunk, 2)).toBe(true);
    reads.ask(chunk, 2 * chunk - 1);
    expect(reads.awaitRoom(1, 2 * chunk)).toBe(false);
    expect(reads.awaitRoom(1, 2 * chunk + 1)).toBe(true);
  });

  test('are as many when a large request leaves as when a small one does', () => {
    const [reads] = setUp(1, WIDE * CHARGE).users;
    expect(reads.awaitRoom(256, 2)).toBe(true);
    reads.ask(0, 255);
    reads.receivedRun(191);
    expect([reads.awaitRoom(64, 2), reads.awaitRoom(256, 2)]).toEqual([false, false]);
    reads.receivedRun(1);
    expect([reads.awaitRoom(64, 2), reads.awaitRoom(256, 2)]).toEqual([true, true]);
    reads.ask(256, 511);
    for (const most of [64, 256]) {
      expect(reads.awaitRoom(most, 320 + 63)).toBe(false);
      expect(reads.awaitRoom(most, 320 + 64)).toBe(true);
    }
  });

  test('after a timeout are one request at least', () => {
    const [reads] = setUp(1, WIDE * CHARGE).users;
    reads.timedOut();
    reads.ask(0, 255);
    expect(reads.awaitRoom(1, 2)).toBe(false);
    reads.receivedRun(255);
    expect([reads.awaitRoom(63, 2), reads.awaitRoom(64, 2), reads.awaitRoom(256, 2)]).toEqual([
      true,
      false,
      false,
    ]);
    reads.receivedRun(1);
    reads.retire(256);
    reads.ask(256, 319);
    expect(reads.awaitRoom(256, 2)).toBe(true);
  });

  test('the check sees responses without a request', () => {
    const { users } = setUp();
    users[0].ask(0, 2);
    expect(users[0].check()).toBeUndefined();
    users[0].list.clear();
    expect(users[0].check()).toBe('3 READ responses of 0 requests are in flight');
  });

  test('are forgotten where all requests are answered without them, and their budget is there again', () => {
    const { budget, users, settled } = setUp();
    users[0].ask(0, 2);
    users[0].retire(2);
    expect([users[0].responses, budget.left]).toEqual([3, TOTAL - 3 * CHARGE]);
    users[0].retire(3);
    expect([users[0].responses, budget.left]).toEqual([0, TOTAL]);
    settled();
  });

  test('are forgotten with a release, and their budget is there again', () => {
    const { budget, users, settled } = setUp();
    const [reads] = users;
    reads.ask(0, 3);
    reads.list.add(4, 4);
    expect(budget.left).toBe(TOTAL - 4 * CHARGE);
    settled();
    reads.release();
    expect([reads.responses, reads.list.count, reads.held, budget.left]).toEqual([0, 0, 0, TOTAL]);
  });
});

describe('a response is LAST or ONLY', () => {
  /** A READ of 25 responses: requests for 10, 10 and 5. */
  const asked = () => {
    const [reads] = setUp().users;
    reads.ask(0, 9);
    return reads;
  };

  test('at the end of each request, and nowhere else', () => {
    const reads = asked();
    for (let packet = 0; packet < 25; packet++) {
      const isEnd = packet === 9 || packet === 19 || packet === 24;
      expect(reads.endsRight(packet, packet, 25, false, true)).toBe(isEnd);
      expect(reads.endsRight(packet, packet, 25, false, false)).toBe(!isEnd);
    }
  });

  test('also elsewhere where a part was asked for again, until all is answered', () => {
    const reads = asked();
    reads.repeated(0, 7);
    expect([true, false].map((last) => reads.endsRight(5, 5, 25, false, last))).toEqual([true, true]);
    expect(reads.endsRight(7, 7, 25, false, true)).toBe(false);
    expect(reads.endsRight(9, 9, 25, false, false)).toBe(false);
    for (let i = 0; i < 10; i++) reads.received();
    reads.retire(10);
    reads.ask(10, 19);
    expect(reads.endsRight(12, 12, 25, false, true)).toBe(false);
  });

  test('anywhere where nothing was asked for', () => {
    const [reads] = setUp().users;
    expect([true, false].map((last) => reads.endsRight(5, 5, 25, false, last))).toEqual([true, true]);
  });
});

describe('the budget', () => {
  test('allows one request whatever its size, and then the rest', () => {
    const { budget } = setUp(1, 1000);
    expect(budget.has(5000)).toBe(true);
    budget.take(400);
    expect(budget.has(600)).toBe(true);
    expect(budget.has(601)).toBe(false);
  });

  test('is used up exactly, and holds back the next', () => {
    const { users, settled } = setUp(3);
    const [a, b, c] = users;
    for (const reads of [a, b]) {
      expect(reads.awaitRoom(CHUNK, WIDE)).toBe(true);
      reads.ask(0, 9);
    }
    settled();
    expect(a.awaitRoom(1, WIDE)).toBe(false);
    expect(a.isWaiting).toBe(false); // Its own responses will come.
    expect(c.awaitRoom(1, WIDE)).toBe(false);
    expect(c.isWaiting).toBe(true);
    expect(c.wanted).toBe(CHARGE);
  });

  test('goes to who waits first, as soon as there is enough', () => {
    const { users, woken, settled } = setUp(3);
    const [a, b, c] = users;
    a.ask(0, 19);
    expect(b.awaitRoom(4, WIDE)).toBe(false);
    expect(c.awaitRoom(1, WIDE)).toBe(false);
    for (let i = 0; i < 3; i++) a.received();
    // Enough for the second, who waits behind the first; and for nobody else.
    expect(woken).toEqual([]);
    expect(a.awaitRoom(1, WIDE)).toBe(false);
    a.received();
    expect(woken).toEqual([1]);
    expect(b.isWaiting).toBe(false);
    expect(b.held).toBe(4 * CHARGE);
    settled();
    a.received();
    expect(woken).toEqual([1, 2]);
    // The request uses the place that it was granted, and takes no other.
    expect(b.awaitRoom(4, 1)).toBe(true);
    b.ask(0, 3);
    expect(b.held).toBe(4 * CHARGE);
    settled();
    for (let i = 0; i < 4; i++) b.received();
    expect(b.held).toBe(0);
    settled();
  });

  test('is not asked for twice by one that waits', () => {
    const { users, woken, settled } = setUp(2);
    const [a, b] = users;
    a.ask(0, 19);
    for (let i = 0; i < 3; i++) expect(b.awaitRoom(1, WIDE)).toBe(false);
    for (let i = 0; i < 5; i++) a.received();
    expect(woken).toEqual([1]);
    expect(b.held).toBe(CHARGE);
    settled();
  });

  test('is not granted to one that gave up, and that which was granted comes back', () => {
    const { users, woken, settled } = setUp(3);
    const [a, b, c] = users;
    a.ask(0, 19);
    b.awaitRoom(1, WIDE);
    c.awaitRoom(1, WIDE);
    b.release();
    expect(b.isWaiting).toBe(false);
    a.received();
    expect(woken).toEqual([2]);
    expect(b.held).toBe(0);
    c.release();
    expect(c.held).toBe(0);
    settled();
  });

  test('of a whole device without any goes to the one that waits, however much it wants', () => {
    const { users, woken } = setUp(2, 3 * CHARGE);
    const [a, b] = users;
    a.ask(0, 2);
    expect(b.awaitRoom(9, WIDE)).toBe(false);
    a.release();
    expect(woken).toEqual([1]);
    expect(b.awaitRoom(9, WIDE)).toBe(true);
  });
});

describe('a wait for budget', () => {
  test('goes on while others give back, and ends when nothing moved for a while', () => {
    const { users, settled } = setUp(2);
    const [a, b] = users;
    a.ask(0, 19);
    expect(b.awaitRoom(CHUNK, WIDE)).toBe(false);
    a.received();
    expect(b.waited()).toBe(false);
    expect(b.isWaiting).toBe(true);
    a.received();
    // It asks again before it was woken: its wait began before.
    expect(b.awaitRoom(CHUNK, WIDE)).toBe(false);
    expect(b.waited()).toBe(false);
    expect(b.waited()).toBe(true);
    expect(b.isWaiting).toBe(false);
    // Now one request leaves, whatever is left; the next one waits again.
    expect(b.awaitRoom(CHUNK, WIDE)).toBe(true);
    b.ask(0, 9);
    settled();
    b.release();
    expect(b.awaitRoom(CHUNK, WIDE)).toBe(false);
  });

  test('is over for one that does not wait', () => {
    const [reads] = setUp().users;
    expect(reads.waited()).toBe(true);
    // That alone forces nothing.
    const { users } = setUp(2);
    users[0].ask(0, 19);
    expect(users[1].waited()).toBe(true);
    expect(users[1].awaitRoom(1, WIDE)).toBe(false);
  });

  test('waiting does not outlast a release', () => {
    const { users } = setUp(2);
    const [a, b] = users;
    a.ask(0, 19);
    b.awaitRoom(1, WIDE);
    expect(b.waited()).toBe(true);
    b.release();
    expect(b.awaitRoom(1, WIDE)).toBe(false);
  });
});
