/** Tag matching: which receive a message gets, rendezvous, and the order that synchronization keeps (ibv_post_srq_ops(3)). */
import { createRandom, TmhOpcode } from '@node-roce/wire';
import { beforeEach, describe, expect, test } from 'vitest';
import { type Completion, Pair } from '../../testing/pair.ts';
import { Cqe, type MrCreated, Ring, type SrqCreated, type SrqOp, WcFlags, WcOpcode } from '../index.ts';

const MATCH = WcFlags.TM_MATCH;
const VALID = WcFlags.TM_DATA_VALID;
const ALL = 0xffff_ffff_ffff_ffffn;

let pair: Pair;
let srq: SrqCreated;
let ring: Ring;
let cq: Ring;
let cqHandle: number;
const source = new Uint8Array(65_536);
const target = new Uint8Array(65_536);
let from: MrCreated;
let to: MrCreated;

/** Right has a tag matching SRQ, and a queue pair on it that left's is connected to. */
function setUp({ maxSendWr = 0, max = 4, attr = {} } = {}) {
  pair = new Pair();
  const { left, right } = pair;
  const created = right.adapter.createCq(256, { tagged: true });
  cqHandle = created.handle;
  cq = new Ring(created.ring);
  srq = right.adapter.createSrq({
    ...{ pd: right.pd, maxWr: 8, maxSge: 2, limit: 0 },
    tags: { max, cq: cqHandle },
  });
  ring = new Ring(srq.ring);
  from = left.register(source.map((_, i) => i * 7).buffer);
  to = right.register(target.fill(0).buffer);
  left.createQp();
  right.createQp({ maxSendWr }, { srq: srq.handle });
  pair.connect({ attr: { rnrRetry: 1, minRnrTimer: 1, ...attr } });
}
beforeEach(() => setUp());

type Common = 'wrId' | 'signaled';
type Operation = {
  [K in SrqOp['opcode']]: Omit<Extract<SrqOp, { opcode: K }>, Common>;
}[SrqOp['opcode']] &
  Partial<Pick<SrqOp, Common>>;

function op(init: Operation): number {
  return pair.right.adapter.postSrqOp(srq.handle, { wrId: 1n, signaled: true, ...init } as SrqOp);
}

/** Adds a buffer of so many bytes at 4096 · `recvWrId`. */
function add(tag: bigint, recvWrId: number, length = 4096, mask = ALL): number {
  const list = [{ addr: to.addr + BigInt(4096 * recvWrId), length, lkey: to.lkey }];
  return op({ opcode: 'TAG_ADD', recvWrId: BigInt(recvWrId), tag, mask, list, signaled: false });
}

/** A receive for unexpected messages, at the same place. */
const post = (wrId: number) =>
  pair.right.postRecv(wrId, [{ mr: to, offset: 4096 * wrId, length: 4096 }], ring);

function header(opcode: number, tag: bigint, length = 16): Uint8Array {
  const bytes = new Uint8Array(length);
  const view = new DataView(bytes.buffer);
  bytes[0] = opcode;
  view.setUint32(4, 0xabcd);
  view.setBigUint64(8, tag);
  return bytes;
}

/** Sends a header and as many bytes of the source. */
function send(opcode: number, tag: bigint, length = 10) {
  const headers = pair.left.register(header(opcode, tag).buffer as ArrayBuffer);
  const sge = [
    { mr: headers, length: 16 },
    { mr: from, length },
  ];
  pair.left.post({ opcode: 'SEND', sge, flags: 0 });
}

/** The first two of the packets of a message have come, the others are late. */
function beginToArrive(tag: bigint) {
  let count = 0;
  pair.fault = (packet) => [{ packet, delay: ++count > 2 ? 100 : 0 }];
  send(TmhOpcode.EAGER, tag, 2000);
  pair.run(50);
}

/** Asks for so many bytes of the source to be read. */
function ask(tag: bigint, length: number, key = from.rkey) {
  const inline = header(TmhOpcode.RENDEZVOUS, tag, 32);
  const view = new DataView(inline.buffer);
  view.setBigUint64(16, from.addr);
  view.setUint32(24, key);
  view.setUint32(28, length);
  pair.left.post({ opcode: 'SEND', inline, flags: 0 });
}

/** Posts receives at the sender for the messages that end rendezvous. */
function expectEnds(count: number): Uint8Array {
  const inbox = new Uint8Array(64);
  const mr = pair.left.register(inbox.buffer);
  for (let i = 0; i < count; i++) pair.left.postRecv(i, [{ mr, length: 64 }]);
  return inbox;
}

type Found = Pick<Completion, 'wrId' | 'status' | 'opcode' | 'flags' | 'byteLen'> & {
  tag: number;
  data: number;
};
function received(): Found[] {
  pair.run();
  const tags: [number, number][] = [];
  for (let i = cq.consumer; i !== cq.producer; i++) {
    const w = cq.wordOf(i);
    tags.push([cq.words[w + Cqe.TAG_LOW], cq.words[w + Cqe.TAG_DATA]]);
  }
  return pair.right.poll(cq).map(({ wrId, status, opcode, flags, byteLen }, i) => {
    return { wrId, status, opcode, flags, byteLen, tag: tags[i][0], data: tags[i][1] };
  });
}
const bytesAt = (wrId: number, length: number) => [...target.subarray(4096 * wrId, 4096 * wrId + length)];
const sent = (length: number) => [...new Uint8Array(source.map((_, i) => i * 7).subarray(0, length))];

describe('eager messages', () => {
  test('a message goes to the oldest buffer that matches, without its header', () => {
    add(0x12n, 1);
    add(0x34n, 2, 4096, 0xffn);
    add(0x34n, 3);
    send(TmhOpcode.EAGER, 0x1234n);
    expect(received()).toEqual([
      {
        ...{ wrId: 2, status: 'SUCCESS', opcode: WcOpcode.TM_RECV, flags: MATCH | VALID, byteLen: 10 },
        ...{ tag: 0x1234, data: 0xabcd },
      },
    ]);
    expect(bytesAt(2, 10)).toEqual(sent(10));
    send(TmhOpcode.EAGER, 0x34n, 3000);
    expect(received()).toMatchObject([{ wrId: 3, byteLen: 3000 }]);
    expect(bytesAt(3, 3000)).toEqual(sent(3000));
  });

  test('one that matches nothing takes a receive, with its header', () => {
    post(1);
    send(TmhOpcode.EAGER, 5n);
    expect(received()).toEqual([
      { wrId: 1, status: 'SUCCESS', opcode: WcOpcode.TM_RECV, flags: 0, byteLen: 26, tag: 0, data: 0 },
    ]);
    expect(bytesAt(1, 26)).toEqual([...header(TmhOpcode.EAGER, 5n), ...sent(10)]);
  });

  test.each([
    ['NO_TAG', TmhOpcode.NO_TAG],
    ['FIN', TmhOpcode.FIN],
    ['an operation that there is none of', 200],
  ])('%s matches nothing, and is not unexpected', (_, opcode) => {
    add(5n, 1);
    post(2);
    send(opcode, 5n);
    expect(received()).toMatchObject([{ wrId: 2, opcode: WcOpcode.TM_NO_TAG, flags: 0, tag: 0 }]);
    add(6n, 3);
    send(TmhOpcode.EAGER, 6n);
    expect(received()).toMatchObject([{ wrId: 3 }]);
  });

  test('a message without a whole header has no tag', () => {
    post(1);
    pair.left.post({ opcode: 'SEND', inline: new Uint8Array(15).fill(3), flags: 0 });
    expect(received()).toMatchObject([{ wrId: 1, opcode: WcOpcode.TM_NO_TAG, byteLen: 15 }]);
  });

  test('a message of many packets, and one that is too long', () => {
    setUp({ attr: { pathMtu: 256 } });
    add(1n, 1, 2000);
    add(2n, 2, 999);
    send(TmhOpcode.EAGER, 1n, 2000);
    expect(received()).toMatchObject([{ wrId: 1, byteLen: 2000, flags: MATCH | VALID }]);
    expect(bytesAt(1, 2000)).toEqual(sent(2000));
    send(TmhOpcode.EAGER, 2n, 1000);
    expect(received()).toMatchObject([{ wrId: 2, status: 'LOC_LEN_ERR' }]);
  });

  test('RNR where nothing is posted, and the message comes again', () => {
    send(TmhOpcode.EAGER, 1n);
    pair.run(15);
    add(1n, 1);
    expect(received()).toMatchObject([{ wrId: 1, flags: MATCH | VALID }]);
  });

  test('WRITE with immediate takes a receive', () => {
    const window = pair.right.register(new ArrayBuffer(64));
    post(1);
    pair.left.post({ opcode: 'RDMA_WRITE_WITH_IMM', sge: [], remote: window, immediate: 7, flags: 0 });
    expect(received()).toMatchObject([{ wrId: 1, opcode: WcOpcode.RECV_RDMA_WITH_IMM }]);
  });
});

describe('synchronization', () => {
  test('after an unexpected message new buffers match nothing until it is handled; earlier ones do', () => {
    add(1n, 1);
    for (const wrId of [4, 5]) post(wrId);
    send(TmhOpcode.EAGER, 2n);
    expect(received()).toMatchObject([{ wrId: 4, flags: 0 }]);
    op({ opcode: 'TAG_ADD', recvWrId: 2n, tag: 2n, mask: ALL, list: [] });
    expect(received()).toMatchObject([{ opcode: WcOpcode.TM_ADD, flags: WcFlags.TM_SYNC_REQ }]);
    send(TmhOpcode.EAGER, 1n);
    send(TmhOpcode.EAGER, 2n, 0);
    expect(received()).toMatchObject([{ wrId: 1 }, { wrId: 5, flags: 0 }]);
    op({ opcode: 'TAG_SYNC', handled: 1 });
    expect(received()).toMatchObject([{ opcode: WcOpcode.TM_SYNC, flags: WcFlags.TM_SYNC_REQ }]);
    op({ opcode: 'TAG_SYNC', handled: 2 });
    expect(received()).toMatchObject([{ opcode: WcOpcode.TM_SYNC, flags: 0 }]);
    send(TmhOpcode.EAGER, 2n, 0);
    expect(received()).toMatchObject([{ wrId: 2, flags: MATCH | VALID }]);
  });

  test('one that is still arriving counts', () => {
    setUp({ attr: { pathMtu: 256 } });
    for (const wrId of [4, 5]) post(wrId);
    beginToArrive(1n);
    send(TmhOpcode.EAGER, 1n, 0);
    add(1n, 1);
    expect(received()).toMatchObject([
      { wrId: 4, byteLen: 2016 },
      { wrId: 5, byteLen: 16 },
    ]);
    op({ opcode: 'TAG_SYNC', handled: 2, signaled: false });
    send(TmhOpcode.EAGER, 1n, 0);
    expect(received()).toMatchObject([{ wrId: 1 }]);
  });

  test.each(['ERR', 'RESET', 'destroyed'] as const)(
    'one that ends early, as its queue pair is %s, does not',
    (end) => {
      setUp({ attr: { pathMtu: 256 } });
      post(4);
      beginToArrive(1n);
      const { adapter, qp } = pair.right;
      if (end === 'destroyed') adapter.destroyQp(qp.qpn);
      else adapter.modifyQp(qp.qpn, { qpState: end });
      expect(received()).toMatchObject(end === 'ERR' ? [{ wrId: 4, status: 'WR_FLUSH_ERR' }] : []);
      op({ opcode: 'TAG_SYNC' });
      expect(received()).toMatchObject([{ flags: 0 }]);
    },
  );
});

describe('the list', () => {
  test('has room for so many buffers', () => {
    for (const wrId of [1, 2, 3, 4]) add(BigInt(wrId), wrId);
    expect(() => add(5n, 5)).toThrow(expect.objectContaining({ errno: 'ENOMEM' }));
    send(TmhOpcode.EAGER, 2n);
    expect(received()).toMatchObject([{ wrId: 2 }]);
    expect(add(5n, 5)).toBeGreaterThan(0);
  });

  test('a buffer can be removed, once, and not one that was consumed', () => {
    const handles = [add(1n, 1), add(2n, 2)];
    expect(new Set(handles).size).toBe(2);
    op({ opcode: 'TAG_DEL', handle: handles[0], wrId: 9n });
    expect(received()).toMatchObject([{ wrId: 9, opcode: WcOpcode.TM_DEL, status: 'SUCCESS' }]);
    send(TmhOpcode.EAGER, 2n);
    expect(received()).toMatchObject([{ wrId: 2 }]);
    for (const handle of [...handles, 0, 0xffff_ffff]) {
      op({ opcode: 'TAG_DEL', handle, signaled: false });
      expect(received()).toMatchObject([{ opcode: WcOpcode.TM_DEL, status: 'TM_ERR' }]);
    }
  });

  test('refuses longer lists than the queue’s, and queues without tags', () => {
    const list = Array.from({ length: 3 }, () => ({ addr: to.addr, length: 1, lkey: to.lkey }));
    const init = { opcode: 'TAG_ADD', recvWrId: 1n, tag: 1n, mask: ALL, list } as const;
    expect(() => op(init)).toThrow(expect.objectContaining({ errno: 'EINVAL' }));
    const { adapter, pd } = pair.right;
    const plain = adapter.createSrq({ pd, maxWr: 1, maxSge: 1, limit: 0 });
    const sync = { wrId: 0n, signaled: true, opcode: 'TAG_SYNC' } as const;
    expect(() => adapter.postSrqOp(plain.handle, sync)).toThrow(expect.objectContaining({ errno: 'EINVAL' }));
  });

  test('an entry without right to its memory ends the queue pair that took it', () => {
    op({ opcode: 'TAG_ADD', recvWrId: 3n, tag: 1n, mask: ALL, list: [{ addr: 0n, length: 99, lkey: 1 }] });
    send(TmhOpcode.EAGER, 1n);
    expect(received()).toMatchObject([{ opcode: WcOpcode.TM_ADD }, { wrId: 3, status: 'LOC_PROT_ERR' }]);
  });

  test('its queue pairs are RC, and its completion queue stays while it is there', () => {
    const { adapter } = pair.right;
    expect(() => pair.right.createQp({}, { type: 'UC', srq: srq.handle })).toThrow(
      expect.objectContaining({ attribute: 'srq' }),
    );
    adapter.destroyQp(pair.right.qp.qpn);
    expect(() => adapter.destroyCq(cqHandle)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
    adapter.destroySrq(srq.handle);
    adapter.destroyCq(cqHandle);
  });

  test('its queue pairs keep the completion queues that the program gave them', () => {
    const { adapter, pd } = pair.right;
    const { handle: own } = adapter.createCq(8);
    const cap = { maxSendWr: 0, maxRecvWr: 0, maxSendSge: 0, maxRecvSge: 0, maxInlineData: 0 };
    const init = { pd, type: 'RC', sendCq: own, recvCq: own, srq: srq.handle, sqSigAll: false, cap } as const;
    const { qpn } = adapter.createQp(init);
    expect(adapter.queryQp(qpn).init).toMatchObject({ sendCq: own, recvCq: own });
    expect(() => adapter.destroyCq(own)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
    adapter.destroyQp(qpn);
    adapter.destroyCq(own);
  });

  test('is of no XRC domain', () => {
    const { adapter, pd } = new Pair({ right: { experimental: ['xrc'] } }).right;
    const { handle: tagCq } = adapter.createCq(8);
    const xrc = { domain: adapter.openXrcd({}), cq: tagCq };
    const init = { pd, maxWr: 1, maxSge: 1, limit: 0, xrc, tags: { max: 1, cq: tagCq } };
    expect(() => adapter.createSrq(init)).toThrow(expect.objectContaining({ attribute: 'tags' }));
    adapter.destroyCq(tagCq);
  });

  test.each([
    ['is too short', () => pair.right.postRecv(4, [{ mr: to, length: 300 }], ring), 'LOC_LEN_ERR'],
    [
      'names no memory',
      () => pair.right.postRecv(4, [{ mr: { ...to, lkey: 9 }, length: 9 }], ring),
      'LOC_PROT_ERR',
    ],
  ])('is in step after an unexpected message whose receive %s', (_, prepare, status) => {
    setUp({ attr: { pathMtu: 256 } });
    prepare();
    send(TmhOpcode.EAGER, 9n, 1000);
    expect(received()).toMatchObject([{ wrId: 4, status }]);
    op({ opcode: 'TAG_SYNC' });
    expect(received()).toMatchObject([{ flags: 0 }]);
  });
});

describe('rendezvous', () => {
  const FIRST = { opcode: WcOpcode.TM_RECV, flags: MATCH, status: 'SUCCESS' };
  const SECOND = { opcode: WcOpcode.TM_RECV, flags: VALID, status: 'SUCCESS', tag: 0 };

  test('reads the data, and reports both ends', () => {
    const inbox = expectEnds(1);
    add(5n, 1, 8192);
    ask(5n, 5000);
    expect(received()).toMatchObject([
      { wrId: 1, ...FIRST, tag: 5, data: 0xabcd },
      { wrId: 1, ...SECOND, byteLen: 5000 },
    ]);
    expect(bytesAt(1, 5000)).toEqual(sent(5000));
    expect(pair.left.poll()).toMatchObject([{ wrId: 0, byteLen: 16, status: 'SUCCESS' }]);
    expect([...inbox.subarray(0, 16)]).toEqual([...header(TmhOpcode.FIN, 5n)]);
  });

  test.each([0, 3, 10])('of %d bytes into two elements, of 3 bytes and more', (length) => {
    expectEnds(1);
    const list = [3, 50].map((bytes, i) => ({
      addr: to.addr + BigInt(4096 * i),
      length: bytes,
      lkey: to.lkey,
    }));
    op({ opcode: 'TAG_ADD', recvWrId: 1n, tag: 1n, mask: ALL, list, signaled: false });
    ask(1n, length);
    expect(received()).toMatchObject([
      { wrId: 1, ...FIRST },
      { wrId: 1, ...SECOND, byteLen: length },
    ]);
    expect([...bytesAt(0, 3), ...bytesAt(1, 7)]).toEqual([...sent(length), ...Array(10 - length).fill(0)]);
    expect(pair.left.poll()).toHaveLength(1);
  });

  test('more of them than a queue pair carries out at once wait with RNR', () => {
    setUp({ max: 60, attr: { rnrRetry: 7 } });
    expectEnds(60);
    for (let i = 0; i < 60; i++) add(BigInt(i), i % 8, 64);
    for (let i = 0; i < 60; i++) ask(BigInt(i), 50);
    const found = received();
    expect(found.filter(({ flags }) => flags === MATCH).map(({ tag }) => tag)).toEqual([...Array(60).keys()]);
    expect(found.filter(({ flags }) => flags === VALID)).toHaveLength(60);
    expect(pair.left.poll()).toHaveLength(60);
    expect(pair.left.adapter.counters().receivedRnrErr).toBeGreaterThan(0);
  });

  test('data that is still to come when the queue pair ends is flushed', () => {
    add(5n, 1);
    pair.fault = (packet, _now, _index, from) =>
      from === pair.left && packet[0] !== 4 ? [] : [{ packet, delay: 0 }];
    ask(5n, 100);
    pair.run(100);
    pair.right.adapter.modifyQp(pair.right.qp.qpn, { qpState: 'ERR' });
    expect(received()).toMatchObject([
      { wrId: 1, ...FIRST },
      { wrId: 1, status: 'WR_FLUSH_ERR' },
    ]);
  });

  test('losses change nothing', () => {
    setUp({ max: 30, attr: { rnrRetry: 7, timeout: 4 } });
    expectEnds(30);
    for (let i = 0; i < 30; i++) add(BigInt(i), i % 8, 4096);
    const { next } = createRandom(3);
    pair.fault = (packet) => (next() % 8 === 0 ? [] : [{ packet, delay: 0 }]);
    for (let i = 0; i < 30; i++) ask(BigInt(i), 3000);
    const found = received();
    expect(found.filter(({ flags }) => flags === MATCH).map(({ tag }) => tag)).toEqual([...Array(30).keys()]);
    expect(found.filter(({ flags }) => flags === VALID).map(({ wrId }) => wrId)).toEqual(
      Array.from({ length: 30 }, (_, i) => i % 8),
    );
    for (let i = 0; i < 8; i++) expect(bytesAt(i, 3000)).toEqual(sent(3000));
    expect(pair.left.poll().map(({ status }) => status)).toEqual(Array(30).fill('SUCCESS'));
  });

  test('a key that opens nothing fails the receive', () => {
    add(5n, 1);
    ask(5n, 100, 0x1234);
    expect(received()).toMatchObject([
      { wrId: 1, ...FIRST },
      { wrId: 1, status: 'REM_ACCESS_ERR' },
    ]);
  });

  test('longer than the buffer: as a message that is too long', () => {
    add(5n, 1, 99);
    ask(5n, 100);
    expect(received()).toMatchObject([{ wrId: 1, status: 'LOC_LEN_ERR' }]);
  });

  test.each([
    ['the program has a send queue', () => setUp({ maxSendWr: 4 })],
    ['no READs are agreed on', () => setUp({ attr: { maxRdAtomic: 0 } })],
  ])('is left to the program where %s', (_, prepare) => {
    prepare();
    add(5n, 1);
    post(2);
    ask(5n, 100);
    expect(received()).toMatchObject([{ wrId: 2, opcode: WcOpcode.TM_RECV, flags: 0, byteLen: 32 }]);
  });

  test('is left to the program where the queue pair is of another domain than the buffers', () => {
    const { adapter } = pair.right;
    const { cap } = adapter.createQp({
      ...{
        pd: adapter.allocPd(),
        type: 'RC',
        sendCq: cqHandle,
        recvCq: cqHandle,
        srq: srq.handle,
        sqSigAll: false,
      },
      cap: { maxSendWr: 0, maxRecvWr: 0, maxSendSge: 0, maxRecvSge: 0, maxInlineData: 0 },
    });
    expect(cap.maxSendWr).toBe(1);
  });

  test('its queue pair has no send queue, and none to resize', () => {
    const { adapter, qp } = pair.right;
    expect(qp.cap.maxSendWr).toBe(0);
    expect(() => adapter.modifyQp(qp.qpn, { cap: { ...qp.cap, maxSendWr: 8 } })).toThrow(
      expect.objectContaining({ attribute: 'cap' }),
    );
  });
});

test.each([1, 2, 3])('as a plain list does it, seed %d', (seed) => {
  const random = createRandom(seed);
  const below = (n: number) => random.next() % n;
  let list: { handle: number; tag: number; mask: number; wrId: number; enabled: boolean }[] = [];
  const handles = [0];
  let [unexpected, handled] = [0, 0];
  for (let step = 0; step < 150; step++) {
    const choice = below(6);
    if (choice < 2 && list.length < 4) {
      const [tag, mask, wrId] = [below(3), below(2) === 0 ? 3 : 1, step % 7];
      const handle = add(BigInt(tag), wrId, 64, BigInt(mask));
      list.push({ handle, tag, mask, wrId, enabled: unexpected === handled });
      handles.push(handle);
    } else if (choice === 2) {
      const handle = handles[below(handles.length)];
      const isThere = list.some((one) => one.handle === handle);
      list = list.filter((one) => one.handle !== handle);
      op({ opcode: 'TAG_DEL', handle });
      expect(received()).toMatchObject([{ status: isThere ? 'SUCCESS' : 'TM_ERR' }]);
    } else if (choice === 3) {
      handled = below(2) === 0 ? unexpected : Math.max(0, unexpected - 1);
      op({ opcode: 'TAG_SYNC', handled });
      expect(received()).toMatchObject([{ flags: handled === unexpected ? 0 : WcFlags.TM_SYNC_REQ }]);
      if (handled === unexpected) for (const one of list) one.enabled = true;
    } else {
      const [tag, opcode] = [below(8), below(4) === 0 ? TmhOpcode.NO_TAG : TmhOpcode.EAGER];
      const found = list.find((one) => one.enabled && (tag & one.mask) === one.tag);
      const matches = opcode === TmhOpcode.EAGER && found !== undefined;
      if (matches) list = list.filter((one) => one !== found);
      else {
        post(7);
        if (opcode === TmhOpcode.EAGER) unexpected++;
      }
      send(opcode, BigInt(tag), 1);
      expect(received()).toMatchObject([
        matches ? { wrId: found.wrId, flags: MATCH | VALID, tag } : { wrId: 7, flags: 0 },
      ]);
    }
  }
});
