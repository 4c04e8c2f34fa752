/** A raw packet queue pair on a port that the test has in its hands. */
import {
  Access,
  Adapter,
  Cqe,
  type FrameBatch,
  type FramePort,
  type FrameRule,
  gatherSlot,
  invalid,
  type NewRing,
  type QpAttr,
  type QpCap,
  QpStateCode,
  RecvWqe,
  Ring,
  SendFlags,
  SendWqe,
  Sge,
  TX_SLOT_WORDS,
  Tx,
  type TxBatch,
  WC_STATUS_NAMES,
  WrOpcode,
} from '../src/index.ts';

/** Bytes of a frame that the port has room for. */
export const FRAME_ROOM = 256;

/** A port with room for so many frames, which answers each with a status. */
export class TestPort implements FramePort {
  room = Number.POSITIVE_INFINITY;
  status = 0;
  reads = false;
  closed = false;
  rules: readonly FrameRule[] = [];
  readonly sent: Uint8Array[] = [];
  readonly arrived: Uint8Array[] = [];

  setFilter(rules: readonly FrameRule[]): void {
    this.checkFilter(rules);
    this.rules = rules;
  }

  checkFilter(rules: readonly FrameRule[]): void {
    if (rules.some((rule) => rule.some(({ offset }) => offset < 0))) throw invalid('filter', 'no offset');
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

interface RawOptions {
  maxSendWr?: number;
  maxRecvWr?: number;
  /** Entries of the completion queue. */
  cqe?: number;
  newRing?: NewRing;
  /** Hears of an event as it is raised. */
  onEvent?: (type: string) => void;
}

export function setUpRaw({ maxSendWr = 8, maxRecvWr = 8, cqe = 64, newRing, onEvent }: RawOptions = {}) {
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
    onAsyncEvent: (event) => {
      events.push(event);
      onEvent?.(event.type);
    },
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
  const cq = adapter.createCq(cqe);
  const cap = { maxSendWr, maxRecvWr, maxSendSge: 2, maxRecvSge: 2, maxInlineData: 64 };
  const init = { pd, type: 'RAW_PACKET', sendCq: cq.handle, recvCq: cq.handle, cap, sqSigAll: true } as const;
  const { qpn, sendQueue, recvQueue } = adapter.createQp({ ...init, ...(newRing ? { newRing } : {}) });
  let [sq, rq] = [new Ring(sendQueue), new Ring(recvQueue)];
  const completions = new Ring(cq.ring);
  const side = {
    adapter,
    port,
    memory,
    mr,
    qpn,
    events,
    pd,
    cq,
    get now() {
      return adapter.clock[0];
    },
    set now(time: number) {
      adapter.clock[0] = time;
    },
    get sq() {
      return sq;
    },
    get state() {
      return Object.keys(QpStateCode)[sq.state];
    },
    modify: (attr: QpAttr) => adapter.modifyQp(qpn, attr),
    activate(last: 'INIT' | 'RTR' | 'RTS' = 'RTS') {
      side.modify({ qpState: 'INIT', portNum: 1 });
      if (last !== 'INIT') side.modify({ qpState: 'RTR' });
      if (last === 'RTS') side.modify({ qpState: 'RTS' });
    },
    /** Posts a frame in elements of those lengths, one behind the other in memory, and has it sent. */
    send(wrId: number, lengths: number[], opcode: number = WrOpcode.SEND, lkey = mr.lkey) {
      side.publish(wrId, lengths, opcode, lkey);
      adapter.posted(qpn);
      adapter.runFrames();
    },
    /** Posts a frame, as another thread does that has not rung the doorbell. */
    publish(wrId: number, lengths: number[], opcode: number = WrOpcode.SEND, lkey = mr.lkey) {
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
    },
    receive(wrId: number, at: number, length: number, lkey = mr.lkey) {
      const w = rq.wordOf(rq.producer);
      const address = mr.addr + BigInt(at);
      rq.words[w + RecvWqe.WR_ID_LOW] = wrId;
      rq.words[w + RecvWqe.SGE_COUNT] = 1;
      rq.words[w + RecvWqe.SGE + Sge.ADDRESS_HIGH] = Number(address >> 32n);
      rq.words[w + RecvWqe.SGE + Sge.ADDRESS_LOW] = Number(address & 0xffff_ffffn);
      rq.words[w + RecvWqe.SGE + Sge.LENGTH] = length;
      rq.words[w + RecvWqe.SGE + Sge.LKEY] = lkey;
      rq.publish((rq.producer + 1) | 0);
      if (!rq.wake()) return;
      adapter.posted(qpn);
    },
    run: () => adapter.runFrames(),
    /** Resizes, and returns what lets the program go over to the rings of the new size. */
    resize(sizes: Partial<QpCap>): () => void {
      const next = adapter.modifyQp(qpn, { cap: { ...cap, ...sizes } })!;
      return () => {
        const [newSq, newRq] = [new Ring(next.sendQueue), new Ring(next.recvQueue)];
        sq.moveTo(newSq);
        rq.moveTo(newRq);
        [sq, rq] = [newSq, newRq];
        adapter.modifyQp(qpn, {});
      };
    },
    poll(): [wrId: number, status: string, byteLen: number][] {
      adapter.runFrames();
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
    inline(wrId: number, data: Uint8Array, length = data.length) {
      const w = sq.wordOf(sq.producer);
      sq.words[w + SendWqe.OPCODE_FLAGS] = WrOpcode.SEND | (SendFlags.INLINE << 8);
      sq.words[w + SendWqe.WR_ID_LOW] = wrId;
      sq.words[w + SendWqe.SGE_COUNT] = 0;
      sq.words[w + SendWqe.LENGTH] = length;
      sq.bytes.set(data, (w + SendWqe.SGE) * 4);
      sq.publish((sq.producer + 1) | 0);
      adapter.posted(qpn);
    },
  };
  return side;
}

export const frameOf = (byte: number, length = 60): Uint8Array => new Uint8Array(length).fill(byte);
