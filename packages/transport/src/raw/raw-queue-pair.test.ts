/** A raw packet queue pair on a port that the test has in its hands. */
import { describe, expect, test } from 'vitest';
import { gatherSlot, TX_SLOT_WORDS, Tx, type TxBatch } from '../batch.ts';
import { Access, QpStateCode, SendFlags, WC_STATUS_NAMES, WrOpcode } from '../constants.ts';
import { Adapter, type FrameBatch, type FramePort, type FrameRule, type QpAttr } from '../index.ts';
import { Cqe, RecvWqe, Ring, SendWqe, Sge } from '../rings.ts';

const EMSGSIZE = 90;
const ENETDOWN = 100;
const FRAME_ROOM = 256;

/** A port with room for so many frames, which answers each with a status. */
class TestPort implements FramePort {
  room = Number.POSITIVE_INFINITY;
  status = 0;
  reads = false;
  closed = false;
  rules: readonly FrameRule[] = [];
  readonly sent: Uint8Array[] = [];
  readonly arrived: Uint8Array[] = [];

  setFilter(rules: readonly FrameRule[]): void {
    this.rules = rules;
  }

  send(batch: TxBatch, from: number): number {
    for (let i = from; i < batch.count; i++) {
      if (this.room === 0) return i;
      this.room--;
      this.sent.push(gatherSlot(batch, i));
      batch.slots[i * TX_SLOT_WORDS + Tx.STATUS] = this.status;
    }
    return batch.count;
  }

  receive({ slab, slots }: FrameBatch, most: number): number {
    const frames = this.arrived.splice(0, Math.min(most, slots.length / 2));
    for (const [i, frame] of frames.entries()) {
      slab.set(frame.subarray(0, FRAME_ROOM), i * FRAME_ROOM);
      slots[2 * i] = i * FRAME_ROOM;
      slots[2 * i + 1] = frame.length > FRAME_ROOM ? 0 : frame.length;
    }
    return frames.length;
  }

  wantRead(on: boolean): void {
    this.reads = on;
  }

  stats() {
    return { received: 0, dropped: 0 };
  }

  close(): void {
    this.closed = true;
  }
}

function setUp({ maxSendWr = 8, maxRecvWr = 8 } = {}) {
  const port = new TestPort();
  const events: unknown[] = [];
  const batch = { slab: new Uint8Array(8 * FRAME_ROOM), slots: new Uint32Array(16) };
  let seed = 1;
  const adapter = new Adapter({
    random: () => (seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0),
    peers: { add: () => 0, remove: () => {} },
    gids: [],
    activeMtu: 4096,
    throwBugs: true,
    frames: { batch, open: () => port },
    onCompletionEvent: () => {},
    onAsyncEvent: (event) => events.push(event),
  });
  const pd = adapter.allocPd();
  const memory = new Uint8Array(4096);
  const mr = adapter.registerMr({
    pd,
    backing: 1,
    buffer: memory.buffer,
    offset: 0,
    length: memory.length,
    access: Access.LOCAL_WRITE,
  });
  const cq = adapter.createCq(64);
  const cap = { maxSendWr, maxRecvWr, maxSendSge: 2, maxRecvSge: 2, maxInlineData: 64 };
  const init = { pd, type: 'RAW_PACKET', sendCq: cq.handle, recvCq: cq.handle, cap, sqSigAll: true } as const;
  const { qpn, sendQueue, recvQueue } = adapter.createQp(init);
  const [sq, rq, completions] = [new Ring(sendQueue), new Ring(recvQueue), new Ring(cq.ring)];
  const side = {
    adapter,
    port,
    memory,
    mr,
    qpn,
    events,
    pd,
    cq,
    now: 0,
    get state() {
      return Object.keys(QpStateCode)[sq.state];
    },
    modify: (attr: QpAttr) => adapter.modifyQp(qpn, attr, side.now),
    activate(last: 'INIT' | 'RTR' | 'RTS' = 'RTS') {
      side.modify({ qpState: 'INIT', portNum: 1 });
      if (last !== 'INIT') side.modify({ qpState: 'RTR' });
      if (last === 'RTS') side.modify({ qpState: 'RTS' });
    },
    /** Posts a frame in elements of those lengths, one behind the other in memory. */
    send(wrId: number, lengths: number[], opcode: number = WrOpcode.SEND, lkey = mr.lkey) {
      const w = sq.wordOf(sq.producer);
      sq.words[w + SendWqe.OPCODE_FLAGS] = opcode;
      sq.words[w + SendWqe.WR_ID_LOW] = wrId;
      sq.words[w + SendWqe.SGE_COUNT] = lengths.length;
      sq.words[w + SendWqe.LENGTH] = lengths.reduce((sum, length) => sum + length, 0);
      let address = mr.addr;
      for (const [i, length] of lengths.entries()) {
        const s = w + SendWqe.SGE + 4 * i;
        sq.words[s + Sge.ADDRESS_HIGH] = Number(address >> 32n);
        sq.words[s + Sge.ADDRESS_LOW] = Number(address & 0xffff_ffffn);
        sq.words[s + Sge.LENGTH] = length;
        sq.words[s + Sge.LKEY] = lkey;
        address += BigInt(length);
      }
      sq.publish((sq.producer + 1) | 0);
      adapter.posted(qpn);
      adapter.runFrames(side.now);
    },
    receive(wrId: number, at: number, length: number) {
      const w = rq.wordOf(rq.producer);
      const address = mr.addr + BigInt(at);
      rq.words[w + RecvWqe.WR_ID_LOW] = wrId;
      rq.words[w + RecvWqe.SGE_COUNT] = 1;
      rq.words[w + RecvWqe.SGE + Sge.ADDRESS_HIGH] = Number(address >> 32n);
      rq.words[w + RecvWqe.SGE + Sge.ADDRESS_LOW] = Number(address & 0xffff_ffffn);
      rq.words[w + RecvWqe.SGE + Sge.LENGTH] = length;
      rq.words[w + RecvWqe.SGE + Sge.LKEY] = mr.lkey;
      rq.publish((rq.producer + 1) | 0);
      if (!rq.wakes()) return;
      adapter.posted(qpn);
    },
    run: () => adapter.runFrames(side.now),
    poll(): [wrId: number, status: string, byteLen: number][] {
      adapter.runFrames(side.now);
      const found: [number, string, number][] = [];
      for (let i = completions.consumer; i !== completions.producer; i = (i + 1) | 0) {
        const w = completions.wordOf(i);
        const { words } = completions;
        found.push([
          words[w + Cqe.WR_ID_LOW],
          WC_STATUS_NAMES[words[w + Cqe.STATUS]],
          words[w + Cqe.BYTE_LEN],
        ]);
      }
      completions.release(completions.producer);
      return found;
    },
    inline(wrId: number, data: Uint8Array) {
      const w = sq.wordOf(sq.producer);
      sq.words[w + SendWqe.OPCODE_FLAGS] = WrOpcode.SEND | (SendFlags.INLINE << 8);
      sq.words[w + SendWqe.WR_ID_LOW] = wrId;
      sq.words[w + SendWqe.SGE_COUNT] = 0;
      sq.words[w + SendWqe.LENGTH] = data.length;
      sq.bytes.set(data, (w + SendWqe.SGE) * 4);
      sq.publish((sq.producer + 1) | 0);
      adapter.posted(qpn);
    },
  };
  return side;
}

const frameOf = (byte: number, length = 60) => new Uint8Array(length).fill(byte);

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
      side.adapter.advance(side.now);
      expect(side.now).toBeLessThan(16_500);
    }
    expect(side.now).toBeGreaterThan(12_000);
    expect(side.poll()).toHaveLength(6 - early);
  });
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

  test('RESET forgets what waits in the port, and what is posted', () => {
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

  test('ERR flushes what is posted, and what will be', () => {
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

  test('a query gives what is valid in each state', () => {
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

  test('destroying it closes the port and gives back what it held', () => {
    const side = setUp();
    side.activate();
    side.receive(1, 0, 64);
    side.adapter.destroyQp(side.qpn, 0);
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
