/** A raw packet queue pair on a port that the test has in its hands. */
import { afterEach, describe, expect, test, vi } from 'vitest';
import { FRAME_ROOM, frameOf, setUpRaw as setUp } from '../../testing/raw-side.ts';
import { watchedRing } from '../../testing/restless-ring.ts';
import { WrOpcode } from '../constants.ts';
import { Adapter, CONTROL_WORDS, type NewRing, Ring, SendWqe, SGE_WORDS, Sge } from '../index.ts';
import { RateLimit } from '../pacing/rate-limit.ts';

const EMSGSIZE = 90;
const ENETDOWN = 100;

describe('sending', () => {
  test('gathers the elements of a list, or takes the bytes from the entry', () => {
    const side = setUp();
    side.activate();
    side.memory.set(frameOf(1, 14));
    side.memory.set(frameOf(2, 46), 14);
    side.send(1, [14, 46]);
    side.inline(2, frameOf(3, 20));
    expect(side.port.sent).toEqual([Uint8Array.of(...frameOf(1, 14), ...frameOf(2, 46)), frameOf(3, 20)]);
    expect(side.poll()).toEqual([
      [1, 'SUCCESS', 60],
      [2, 'SUCCESS', 20],
    ]);
  });

  test.each([
    ['inline, a length that is right only when it is looked at again', SendWqe.LENGTH, 4000, 64, true],
    ['inline, a length that was right', SendWqe.LENGTH, 64, 4000, true],
    ['an element that is longer than the frame', SendWqe.SGE + Sge.LENGTH, 60, 200, false],
    ['an element that is shorter', SendWqe.SGE + Sge.LENGTH, 60, 20, false],
  ])('an entry that changes between two looks at it: %s', (_, place, first, then, isInline) => {
    for (let reads = 2; reads <= 4; reads++) {
      let looks = 0;
      const side = setUp({
        newRing: (entries, stride) =>
          watchedRing(entries, stride, (words, index) => {
            const value = words[index];
            if (index === CONTROL_WORDS + place && value === first && ++looks === reads - 1)
              words[index] = then;
            return value;
          }),
      });
      side.activate();
      const size = isInline ? 64 : 60;
      if (isInline) side.inline(1, frameOf(1, size), first);
      else side.send(1, [size]);
      // A whole frame, or none.
      const sent = side.port.sent.map(({ length }) => length);
      const [[, status]] = side.poll();
      expect(sent).toEqual(status === 'SUCCESS' ? [size] : []);
    }
  });

  test('a list that becomes longer than the queue pair allows is not sent, though its bytes are as many', () => {
    let looks = 0;
    const isCount = (index: number) => index === CONTROL_WORDS + SendWqe.SGE_COUNT;
    const newRing: NewRing = (entries, stride) =>
      watchedRing(entries, stride, (words, index) => {
        if (isCount(index) && words[index] === 2 && ++looks === 2) {
          words[index] = 4;
          for (let i = 0; i < 4; i++) {
            const s = CONTROL_WORDS + SendWqe.SGE + SGE_WORDS * i;
            for (const at of [Sge.ADDRESS_HIGH, Sge.ADDRESS_LOW, Sge.LKEY])
              words[s + at] = words[CONTROL_WORDS + SendWqe.SGE + at];
            words[s + Sge.LENGTH] = 15;
          }
        }
        return words[index];
      });
    const side = setUp({ newRing });
    side.activate();
    side.send(1, [40, 20]);
    expect(side.poll()).toEqual([[1, 'LOC_PROT_ERR', 60]]);
    expect(side.port.sent).toEqual([]);
  });

  test('waits for room, and goes on in order', () => {
    const side = setUp();
    side.activate();
    side.port.room = 2;
    for (let i = 0; i < 5; i++) side.send(i, [60 + i]);
    expect(side.poll().map(([wrId]) => wrId)).toEqual([0, 1]);
    side.adapter.checkInvariants();
    side.port.room = 2;
    expect(side.poll().map(([wrId]) => wrId)).toEqual([2, 3]);
    side.port.room = 9;
    expect(side.poll().map(([wrId]) => wrId)).toEqual([4]);
    expect(side.port.sent.map(({ length }) => length)).toEqual([60, 61, 62, 63, 64]);
  });

  test.each<[string, (side: ReturnType<typeof setUp>) => void, string]>([
    ['without a whole header', (side) => side.send(7, [13]), 'LOC_LEN_ERR'],
    [
      'longer than the interface takes',
      (side) => {
        side.port.status = EMSGSIZE;
        side.send(7, [4000]);
      },
      'LOC_LEN_ERR',
    ],
    ['of memory that is not registered', (side) => side.send(7, [60], WrOpcode.SEND, 99), 'LOC_PROT_ERR'],
    ['of another operation', (side) => side.send(7, [60], WrOpcode.RDMA_WRITE), 'LOC_QP_OP_ERR'],
  ])('%s, a request fails, and SQE flushes those behind it', (_, post, status) => {
    const side = setUp();
    side.activate();
    post(side);
    side.port.status = 0;
    side.send(8, [60]);
    expect(side.state).toBe('SQE');
    expect(side.poll()).toEqual([
      [7, status, expect.any(Number)],
      [8, 'WR_FLUSH_ERR', expect.any(Number)],
    ]);
    // Frames still come in, and SQE can be left.
    side.receive(9, 0, 100);
    side.port.arrived.push(frameOf(5));
    expect(side.poll()).toEqual([[9, 'SUCCESS', 60]]);
    side.modify({ qpState: 'RTS' });
    side.send(10, [60]);
    expect(side.poll()).toEqual([[10, 'SUCCESS', 60]]);
  });

  test('fails behind a frame that waits for room, in its turn', () => {
    const side = setUp();
    side.activate();
    side.port.room = 0;
    side.send(1, [60]);
    side.send(2, [13]);
    expect(side.poll()).toEqual([]);
    side.port.room = 1;
    expect(side.poll().map(([wrId, status]) => [wrId, status])).toEqual([
      [1, 'SUCCESS'],
      [2, 'LOC_LEN_ERR'],
    ]);
  });

  test('a frame that the interface did not take is lost, as on a cable', () => {
    const side = setUp();
    side.activate();
    side.port.status = ENETDOWN;
    side.send(1, [60]);
    expect(side.poll()).toEqual([[1, 'SUCCESS', 60]]);
    expect(side.adapter.qpCounters(side.qpn)).toMatchObject({ sentPackets: 0, sendErrors: 1 });
  });

  test('memory that is deregistered while its frame waits is not read', () => {
    const side = setUp();
    side.activate();
    side.port.room = 0;
    side.send(1, [60]);
    side.adapter.deregisterMr(side.mr.handle);
    expect(side.adapter.regions.views.filter((view) => view?.buffer === side.memory.buffer)).toEqual([]);
  });

  test('rate_limit holds frames back', () => {
    const side = setUp();
    side.activate();
    // 1,000 bytes at 8,000 kbit/s are 1 ms.
    side.modify({ rateLimit: 8000 });
    side.now = 10_000;
    for (let i = 0; i < 6; i++) side.send(i, [1000]);
    const early = side.poll().length;
    expect(early).toBeLessThan(5);
    const at = side.adapter.nextDeadline();
    expect(at).toBeGreaterThan(10_000);
    expect(at).toBeLessThanOrEqual(11_000);
    for (side.now = at; side.port.sent.length < 6; side.now += 500) {
      side.adapter.advance();
      expect(side.now).toBeLessThan(16_500);
    }
    expect(side.now).toBeGreaterThan(12_000);
    expect(side.poll()).toHaveLength(6 - early);
  });
});

// Once: an exception for a key, and for an element of another domain its bytes.
describe('a list that another thread changes after it was checked fails its request', () => {
  const change = (words: (side: ReturnType<typeof setUp>) => [word: number, value: number]) => {
    const side = setUp();
    side.activate();
    const first = side.sq.wordOf(side.sq.producer) + SendWqe.SGE;
    vi.spyOn(RateLimit.prototype, 'limited', 'get').mockImplementationOnce(() => {
      const [word, value] = words(side);
      side.sq.words[first + word] = value;
      return false;
    });
    side.send(1, [30, 30]);
    expect(side.port.sent).toEqual([]);
    expect(side.poll()).toEqual([[1, 'LOC_PROT_ERR', 60]]);
    expect(side.state).toBe('SQE');
  };

  test('to a key of no region', () => change(() => [Sge.LKEY, 0]));

  test('to a region of another domain', () =>
    change(({ adapter }) => [Sge.LKEY, adapter.allocNullMr(adapter.allocPd()).lkey]));
});

describe('receiving', () => {
  test('a frame goes into the oldest receive, with its length', () => {
    const side = setUp();
    side.activate('RTR');
    side.receive(1, 100, 64);
    side.receive(2, 300, 64);
    side.port.arrived.push(frameOf(1), frameOf(2, 64));
    expect(side.poll()).toEqual([
      [1, 'SUCCESS', 60],
      [2, 'SUCCESS', 64],
    ]);
    expect(side.memory.subarray(100, 164)).toEqual(Uint8Array.of(...frameOf(1), 0, 0, 0, 0));
    expect(side.memory.subarray(300, 364)).toEqual(frameOf(2, 64));
  });

  test('frames wait in the port until a receive is posted, and do not wake the host', () => {
    const side = setUp();
    side.activate();
    expect(side.port.reads).toBe(false);
    side.port.arrived.push(frameOf(1));
    expect(side.poll()).toEqual([]);
    side.receive(1, 0, 64);
    expect(side.port.arrived).toEqual([]);
    expect(side.poll()).toEqual([[1, 'SUCCESS', 60]]);
    side.receive(2, 0, 64);
    expect(side.port.reads).toBe(true);
  });

  test('a frame too long for the receive, or for the link, is dropped and counted', () => {
    const side = setUp();
    side.activate();
    side.receive(1, 0, 64);
    side.port.arrived.push(frameOf(1, 65), frameOf(2, FRAME_ROOM + 1), frameOf(3));
    expect(side.poll()).toEqual([[1, 'SUCCESS', 60]]);
    expect(side.adapter.qpCounters(side.qpn)).toMatchObject({ droppedPackets: 2, receivedMessages: 1 });
  });

  test('a receive in memory that is gone ends the queue pair', () => {
    const side = setUp();
    side.activate();
    side.receive(1, 0, 64);
    side.adapter.deregisterMr(side.mr.handle);
    side.port.arrived.push(frameOf(1));
    expect(side.poll()).toEqual([[1, 'LOC_PROT_ERR', 0]]);
    expect(side.state).toBe('ERR');
  });

  test('RESET forgets frames that wait in the port, and posted requests', () => {
    const side = setUp();
    side.activate();
    side.port.arrived.push(frameOf(1), frameOf(2));
    side.modify({ qpState: 'RESET' });
    expect(side.port.rules).toEqual([]);
    side.activate();
    side.receive(1, 0, 64);
    side.port.arrived.push(frameOf(3));
    expect(side.poll()).toEqual([[1, 'SUCCESS', 60]]);
    expect(side.memory[0]).toBe(3);
  });

  test('ERR flushes posted requests, and later ones', () => {
    const side = setUp();
    side.activate();
    side.receive(1, 0, 64);
    side.port.room = 0;
    side.send(2, [60]);
    side.modify({ qpState: 'ERR' });
    side.receive(3, 0, 64);
    expect(side.poll().sort()).toEqual([
      [1, 'WR_FLUSH_ERR', 0],
      [2, 'WR_FLUSH_ERR', 60],
      [3, 'WR_FLUSH_ERR', 0],
    ]);
    side.adapter.checkInvariants();
  });
});

describe('control', () => {
  test('the port gets the filter from RTR on', () => {
    const side = setUp();
    const rule = [{ offset: 12, value: Uint8Array.of(8, 6) }];
    side.adapter.setFrameFilter(side.qpn, [rule]);
    expect(side.port.rules).toEqual([]);
    side.activate('RTR');
    expect(side.port.rules).toEqual([rule]);
    side.adapter.setFrameFilter(side.qpn, undefined);
    expect(side.port.rules).toEqual([[]]);
  });

  test.each(['RESET', 'RTS'])('a filter that the port refuses changes nothing, in %s', (state) => {
    const side = setUp();
    if (state === 'RTS') side.activate();
    const rule = [{ offset: 12, value: Uint8Array.of(8, 6) }];
    side.adapter.setFrameFilter(side.qpn, [rule]);
    expect(() => side.adapter.setFrameFilter(side.qpn, [[{ offset: -1, value: rule[0].value }]])).toThrow(
      expect.objectContaining({ errno: 'EINVAL', attribute: 'filter' }),
    );
    if (state === 'RESET') side.activate();
    expect(side.port.rules).toEqual([rule]);
  });

  test('RESET keeps the filter', () => {
    const side = setUp();
    const rule = [{ offset: 12, value: Uint8Array.of(8, 6) }];
    side.adapter.setFrameFilter(side.qpn, [rule]);
    for (let i = 0; i < 2; i++) {
      side.activate();
      expect(side.port.rules).toEqual([rule]);
      side.modify({ qpState: 'RESET' });
      expect(side.port.rules).toEqual([]);
    }
  });

  test('frames are counted by each rule that lets them pass, until the next filter', () => {
    const side = setUp();
    side.activate();
    const bytes = (offset: number, byte: number, mask?: number) => ({
      offset,
      value: Uint8Array.of(byte),
      ...(mask === undefined ? {} : { mask: Uint8Array.of(mask) }),
    });
    const rules = [[bytes(0, 1)], [bytes(0, 0xff, 1), bytes(59, 3)], [bytes(60, 0)], []];
    expect(side.adapter.setFrameFilter(side.qpn, rules, true)).toEqual([]);
    side.port.arrived.push(frameOf(1), frameOf(3), frameOf(1, 61), frameOf(2));
    for (let i = 0; i < 4; i++) side.receive(i, 0, 64);
    side.run();
    const counts = [
      { frames: 2, bytes: 121 },
      { frames: 1, bytes: 60 },
      { frames: 0, bytes: 0 },
      { frames: 4, bytes: 241 },
    ];
    expect(side.adapter.frameCounts(side.qpn)).toEqual(counts);
    expect(side.adapter.setFrameFilter(side.qpn, rules)).toEqual(counts);
    expect(side.adapter.frameCounts(side.qpn)).toEqual([]);
    side.adapter.setFrameFilter(side.qpn, undefined, true);
    side.receive(5, 0, 64);
    side.port.arrived.push(frameOf(1));
    side.run();
    expect(side.adapter.frameCounts(side.qpn)).toEqual([{ frames: 1, bytes: 60 }]);
    side.modify({ qpState: 'RESET' });
    expect(side.adapter.frameCounts(side.qpn)).toEqual([{ frames: 1, bytes: 60 }]);
    expect(() => side.adapter.frameCounts(0x123456)).toThrow('takes no frames');
  });

  test('a query returns the attributes that are valid in each state', () => {
    const side = setUp();
    const attributes = () => {
      const { qpState, curQpState, cap, ...attr } = side.adapter.queryQp(side.qpn).attr;
      expect(cap).toMatchObject({ maxSendWr: 8, maxRecvWr: 8 });
      return { state: qpState, ...attr };
    };
    expect(attributes()).toEqual({ state: 'RESET' });
    side.activate('INIT');
    expect(attributes()).toEqual({ state: 'INIT', portNum: 1 });
    side.modify({ qpState: 'RTR' });
    expect(attributes()).toEqual({ state: 'RTR', portNum: 1 });
    side.modify({ qpState: 'RTS', rateLimit: 5000 });
    expect(attributes()).toEqual({ state: 'RTS', portNum: 1, rateLimit: 5000 });
    side.modify({ qpState: 'SQD' });
    expect(attributes()).toEqual({ state: 'SQD', portNum: 1, rateLimit: 5000, sqDraining: false });
    side.modify({ qpState: 'ERR' });
    expect(attributes()).toEqual({ state: 'ERR' });
  });

  test('SQD starts nothing', () => {
    const side = setUp();
    side.activate();
    side.modify({ qpState: 'SQD' });
    side.send(1, [60]);
    expect(side.poll()).toEqual([]);
    side.modify({ qpState: 'RTS' });
    expect(side.poll()).toEqual([[1, 'SUCCESS', 60]]);
  });

  test('destroying it closes the port and releases its objects', () => {
    const side = setUp();
    side.activate();
    side.receive(1, 0, 64);
    side.adapter.destroyQp(side.qpn);
    expect(side.port.closed).toBe(true);
    expect(side.adapter.usesFrames).toBe(false);
    side.adapter.destroyCq(side.cq.handle);
    side.adapter.deregisterMr(side.mr.handle);
    side.adapter.deallocPd(side.pd);
    expect(() => side.adapter.queryQp(side.qpn)).toThrow('no queue pair');
  });

  test('the end of the adapter closes the port', () => {
    const side = setUp();
    side.activate();
    side.port.room = 0;
    side.send(1, [60]);
    side.adapter.closeFrames();
    expect(side.port.closed).toBe(true);
    expect(side.adapter.usesFrames).toBe(false);
    side.run();
  });

  test('a link without frames refuses the type, and holds nothing', () => {
    const adapter = new Adapter({
      random: () => 5,
      peers: { add: () => 0, remove: () => {} },
      gids: [],
      activeMtu: 4096,
      onCompletionEvent: () => {},
      onAsyncEvent: () => {},
    });
    const pd = adapter.allocPd();
    const { handle } = adapter.createCq(4);
    const cap = { maxSendWr: 1, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
    const init = { pd, type: 'RAW_PACKET', sendCq: handle, recvCq: handle, cap, sqSigAll: true } as const;
    expect(() => adapter.createQp(init)).toThrow(expect.objectContaining({ errno: 'EOPNOTSUPP' }));
    adapter.destroyCq(handle);
    adapter.deallocPd(pd);
  });
});

describe('does not hold the engine, in one call', () => {
  /** Does `work` with each entry that a ring of this size gives back. */
  function onRelease(capacity: number, work: () => void): void {
    const { release } = Ring.prototype;
    vi.spyOn(Ring.prototype, 'release').mockImplementation(function (this: Ring, index: number) {
      release.call(this, index);
      if (this.capacity === capacity) work();
    });
  }

  /** Lets the adapter go on until `isDone`. */
  function goOn(side: ReturnType<typeof setUp>, isDone: () => boolean): void {
    for (let calls = 0; calls < 100 && !isDone(); calls++) {
      side.now = side.adapter.nextDeadline();
      side.adapter.advance();
    }
  }

  afterEach(() => {
    vi.restoreAllMocks();
  });

  test('a thread that goes on posting frames', () => {
    const side = setUp({ maxSendWr: 128, cqe: 4096 });
    side.activate();
    for (let i = 0; i < 128; i++) side.publish(i, [60]);
    let more = 2000;
    onRelease(128, () => more-- > 0 && side.publish(1, [60]));
    side.adapter.posted(side.qpn);
    expect(side.port.sent.length).toBeLessThan(1000);
    goOn(side, () => side.port.sent.length === 2128);
    expect(side.port.sent).toHaveLength(2128);
    expect(side.poll()).toHaveLength(2128);
  });

  test('a network that goes on sending, to a program that goes on posting receives', () => {
    const side = setUp({ maxRecvWr: 64, cqe: 4096 });
    side.activate();
    for (let i = 0; i < 64; i++) side.receive(i, 0, 100);
    onRelease(64, () => side.receive(1, 0, 100));
    let more = 2000;
    vi.spyOn(side.port.arrived, 'splice').mockImplementation((_, most) => {
      const count = Math.min(most, more);
      more -= count;
      return Array.from({ length: count }, () => frameOf(7));
    });
    side.run();
    expect(more).toBeGreaterThan(1000);
    goOn(side, () => more === 0);
    expect(side.poll()).toHaveLength(2000);
  });
});
