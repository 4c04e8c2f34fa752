/** XRC (IBTA vol 1 annex A14): requests that name a shared receive queue. The rules are those of docs/rules.md, by number. */
import { NakCode, OPCODES, Opcode, opcodeInfo } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { type QpCreated, Ring, type SrqCreated, type XrcTargetOpened } from '../src/index.ts';
import { type ElementInit, Pair, type Side, type WorkInit } from '../testing/pair.ts';

const EXPERIMENTAL = { experimental: ['xrc'] as const };

/** An SRQ of a domain, and the memory that its receives fill. */
interface Shared extends SrqCreated {
  domain: number;
  entries: Ring;
}

interface Link {
  ini: QpCreated;
  tgt: XrcTargetOpened;
}

/** Left has initiators, right targets and SRQs in one domain. */
function open({ attr = {}, mtu = 1024 } = {}) {
  const pair = new Pair({ left: EXPERIMENTAL, right: EXPERIMENTAL });
  const { left, right } = pair;
  const domain = right.adapter.openXrcd({});
  const memory = new Uint8Array(65_536);
  const to = right.register(memory.buffer);
  const from = left.register(Uint8Array.from({ length: 65_536 }, (_, i) => i * 7).buffer);

  const createSrq = ({
    maxWr = 8,
    limit = 0,
    within = domain,
    pd = right.pd,
    cq = right.cqHandle,
  } = {}): Shared => {
    const srq = right.adapter.createSrq({ pd, maxWr, maxSge: 2, limit, xrc: { domain: within, cq } });
    return { ...srq, domain: within, entries: new Ring(srq.ring) };
  };
  const connect = (within = domain): Link => {
    left.createQp({}, { type: 'XRC_INI' });
    const ini = left.qp;
    const tgt = right.createXrcTarget(within);
    pair.connect({ mtu, attr: { rnrRetry: 1, minRnrTimer: 1, retryCnt: 1, ...attr } });
    left.use(ini);
    return { ini, tgt };
  };
  const post = (
    srq: Shared,
    wrId: number,
    list: ElementInit[] = [{ mr: to, offset: 4096 * (wrId & 7), length: 4096 }],
  ) => right.postRecv(wrId, list, srq.entries);
  const send = (srqn: number, init: Partial<WorkInit> = {}) =>
    left.post({ opcode: 'SEND', srqn, sge: [{ mr: from, length: 100 }], ...init } as WorkInit);
  const sent = () => {
    pair.run(3_000_000);
    return left.poll().map(({ wrId, status }) => [wrId, status]);
  };
  const received = () => right.poll().map(({ wrId, status }) => [wrId, status]);
  const events = (side: Side = right) => side.events.splice(0).map(({ type }) => type);
  const stateOf = (qpn: number, side: Side = right) => side.adapter.queryQp(qpn).attr.qpState;
  return {
    pair,
    left,
    right,
    domain,
    memory,
    to,
    from,
    createSrq,
    connect,
    post,
    send,
    sent,
    received,
    events,
    stateOf,
  };
}

const opcodesOf = (pair: Pair, from: Side) =>
  pair.sent.filter((p) => p.from === from).map(({ packet }) => opcodeInfo(packet[0])!);
const naks = (pair: Pair) =>
  pair.sent
    .filter(({ from, packet }) => from === pair.right && packet[0] === Opcode.XRC_ACKNOWLEDGE)
    .map(({ packet }) => packet[12])
    .filter((syndrome) => syndrome >= 0x60);

describe('packets on the wire', () => {
  test('X1: every request packet names its SRQ behind the BTH, no response does', () => {
    const { pair, left, right, createSrq, connect, post, send, sent, received, to, from, memory } = open();
    const srq = createSrq();
    const { tgt, ini } = connect();
    post(srq, 1);
    post(srq, 2);
    const remote = { addr: to.addr, rkey: to.rkey };
    send(srq.number!, { wrId: 1, sge: [{ mr: from, length: 3000 }] });
    send(srq.number!, {
      wrId: 2,
      opcode: 'RDMA_WRITE',
      sge: [{ mr: from, length: 3000 }],
      remote: { ...remote, addr: to.addr + 8192n },
    });
    send(srq.number!, {
      wrId: 3,
      opcode: 'RDMA_WRITE_WITH_IMM',
      immediate: 7,
      sge: [{ mr: from, length: 10 }],
      remote: { ...remote, addr: to.addr + 16384n },
    });
    send(srq.number!, {
      wrId: 4,
      opcode: 'RDMA_READ',
      sge: [{ mr: from, offset: 32768, length: 3000 }],
      remote,
    });
    send(srq.number!, {
      wrId: 5,
      opcode: 'ATOMIC_FETCH_AND_ADD',
      sge: [{ mr: from, offset: 40000, length: 8 }],
      remote,
      compareAdd: 1n,
    });
    expect(sent()).toEqual([1, 2, 3, 4, 5].map((wrId) => [wrId, 'SUCCESS']));
    expect(memory.slice(8192, 8192 + 3000)).toEqual(Uint8Array.from({ length: 3000 }, (_, i) => i * 7));
    const completions = right.poll();
    expect(completions.map(({ wrId, byteLen, qpn, srcQp }) => ({ wrId, byteLen, qpn, srcQp }))).toEqual([
      { wrId: 1, byteLen: 3000, qpn: tgt.qpn, srcQp: ini.qpn },
      { wrId: 2, byteLen: 10, qpn: tgt.qpn, srcQp: ini.qpn },
    ]);
    const requests = pair.sent.filter((p) => p.from === left);
    expect(new Set(requests.map(({ packet }) => opcodeInfo(packet[0])!.key))).toEqual(
      new Set(
        [
          'SEND_FIRST',
          'SEND_MIDDLE',
          'SEND_LAST',
          'RDMA_WRITE_FIRST',
          'RDMA_WRITE_MIDDLE',
          'RDMA_WRITE_LAST',
          'RDMA_WRITE_ONLY_WITH_IMMEDIATE',
          'RDMA_READ_REQUEST',
          'FETCH_ADD',
        ].map((key) => `XRC_${key}`),
      ),
    );
    for (const { packet } of requests) {
      expect((packet[13] << 16) | (packet[14] << 8) | packet[15]).toBe(srq.number);
      const info = opcodeInfo(packet[0])!;
      if (!info.hasPayload) expect(packet.length).toBe(info.headerLength);
    }
    expect(
      opcodesOf(pair, right).every(({ offsets, key }) => offsets.xrceth < 0 && key.startsWith('XRC_')),
    ).toBe(true);
    expect(received()).toEqual([]);
    expect(
      OPCODES.filter(({ key, isRequest }) => key.startsWith('XRC_') && isRequest).every(
        ({ offsets }) => offsets.xrceth === 12,
      ),
    ).toBe(true);
  });

  test('X6: one target fills the SRQs that requests name, each into its own completion queue', () => {
    const { right, createSrq, connect, post, send, sent, received } = open();
    const own = right.adapter.createCq(16);
    const [a, b] = [createSrq(), createSrq({ cq: own.handle })];
    connect();
    post(a, 1);
    post(b, 2);
    post(a, 3);
    send(b.number!, { wrId: 1 });
    send(a.number!, { wrId: 2 });
    send(a.number!, { wrId: 3 });
    expect(sent().length).toBe(3);
    expect(received()).toEqual([
      [1, 'SUCCESS'],
      [3, 'SUCCESS'],
    ]);
    expect(new Ring(own.ring).used).toBe(1);
  });

  test('X6: four initiators share one SRQ; messages that arrive at once take one entry each', () => {
    const { left, createSrq, connect, post, send, sent, right, from } = open();
    const srq = createSrq({ maxWr: 64 });
    const links = Array.from({ length: 4 }, () => connect());
    for (let i = 0; i < 40; i++) post(srq, i);
    for (const { ini } of links) {
      left.use(ini);
      for (let i = 0; i < 10; i++) send(srq.number!, { wrId: i, sge: [{ mr: from, length: 2500 }] });
    }
    expect(sent().every(([, status]) => status === 'SUCCESS')).toBe(true);
    const completions = right.poll();
    expect(completions.map(({ wrId }) => wrId).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 40 }, (_, i) => i),
    );
    for (const { tgt } of links) expect(completions.filter(({ qpn }) => qpn === tgt.qpn).length).toBe(10);
  });

  test('X7: only messages that consume a receive need one', () => {
    const { createSrq, connect, send, sent, to, from } = open();
    const srq = createSrq();
    connect();
    const remote = { addr: to.addr, rkey: to.rkey };
    send(srq.number!, { opcode: 'RDMA_WRITE', wrId: 1, remote });
    send(srq.number!, { opcode: 'RDMA_READ', wrId: 2, remote, sge: [{ mr: from, length: 8 }] });
    expect(sent()).toEqual([
      [1, 'SUCCESS'],
      [2, 'SUCCESS'],
    ]);
  });

  test('X14: SRQ_LIMIT_REACHED is raised for the SRQ', () => {
    const { createSrq, connect, post, send, sent, right } = open();
    const srq = createSrq({ limit: 2 });
    connect();
    post(srq, 1);
    post(srq, 2);
    send(srq.number!);
    sent();
    expect(right.events.filter(({ type }) => type === 'SRQ_LIMIT_REACHED')).toEqual([
      { type: 'SRQ_LIMIT_REACHED', srq: srq.handle },
    ]);
  });

  test('loss: each message arrives once, in order', () => {
    const { pair, createSrq, connect, post, send, sent, right, from } = open({
      attr: { retryCnt: 7, timeout: 10 },
    });
    const srq = createSrq({ maxWr: 256 });
    connect();
    let n = 0;
    pair.fault = (packet) => (++n % 7 === 0 ? [] : [{ packet, delay: 0 }]);
    for (let i = 0; i < 60; i++) post(srq, i);
    for (let i = 0; i < 60; i++) send(srq.number!, { wrId: i, sge: [{ mr: from, length: 2000 }] });
    expect(sent().every(([, status]) => status === 'SUCCESS')).toBe(true);
    expect(right.poll().map(({ wrId }) => wrId)).toEqual(Array.from({ length: 60 }, (_, i) => i));
  });
});

describe('packets that are refused', () => {
  const failing = (srqn: (shared: Shared, other: Shared) => number) => {
    const all = open();
    const { right, createSrq, connect, post, send, sent } = all;
    const srq = createSrq();
    const other = createSrq({ within: right.adapter.openXrcd({}) });
    const link = connect();
    post(srq, 1);
    post(other, 2);
    send(srqn(srq, other), { wrId: 1 });
    return { ...all, srq, other, ...link, outcome: sent() };
  };

  test.each([
    [
      'X2: an unknown SRQ number',
      (srq: Shared, other: Shared) => [1, 2, 3].find((n) => n !== srq.number && n !== other.number)!,
    ],
    ['X2: an SRQ of another domain', (_: Shared, other: Shared) => other.number!],
  ])('%s: NAK invalid request, the target in error, QP_ACCESS_ERR, no receive used', (_name, srqn) => {
    const { pair, outcome, events, stateOf, tgt, ini, left, received, srq, other } = failing(srqn);
    expect(outcome).toEqual([[1, 'REM_INV_REQ_ERR']]);
    expect(naks(pair)).toEqual([NakCode.INVALID_REQUEST]);
    expect(events()).toEqual(['QP_ACCESS_ERR']);
    expect([stateOf(tgt.qpn), stateOf(ini.qpn, left)]).toEqual(['ERR', 'ERR']);
    expect(received()).toEqual([]);
    expect([srq.entries.used, other.entries.used]).toEqual([1, 1]);
  });

  test('X2: a WRITE and a READ name an SRQ as well', () => {
    for (const opcode of ['RDMA_WRITE', 'RDMA_READ'] as const) {
      const { connect, send, sent, to, createSrq } = open();
      createSrq();
      connect();
      send(0, { wrId: 1, opcode, remote: { addr: to.addr, rkey: to.rkey } });
      expect(sent()).toEqual([[1, 'REM_INV_REQ_ERR']]);
    }
  });

  test('X3: rights are looked at before the SRQ: QP_REQ_ERR', () => {
    const { connect, send, sent, to, createSrq, events } = open({ attr: { qpAccessFlags: 0 } });
    createSrq();
    connect();
    send(0, { wrId: 1, opcode: 'RDMA_WRITE', remote: { addr: to.addr, rkey: to.rkey } });
    expect(sent()).toEqual([[1, 'REM_INV_REQ_ERR']]);
    expect(events()).toEqual(['QP_REQ_ERR']);
  });

  test('X4: all packets of a message name the same SRQ', () => {
    const { pair, createSrq, connect, post, send, sent, received, from, events } = open();
    const [a, b] = [createSrq(), createSrq()];
    connect();
    post(a, 1);
    post(b, 2);
    pair.fault = (packet) => {
      if (packet[0] !== Opcode.XRC_SEND_MIDDLE) return [{ packet, delay: 0 }];
      const changed = packet.slice();
      changed.set([b.number! >>> 16, (b.number! >>> 8) & 255, b.number! & 255], 13);
      return [{ packet: changed, delay: 0 }];
    };
    send(a.number!, { wrId: 1, sge: [{ mr: from, length: 3000 }] });
    expect(sent()).toEqual([[1, 'REM_INV_REQ_ERR']]);
    expect(received()).toEqual([[1, 'REM_INV_REQ_ERR']]);
    expect(events()).toEqual(['QP_ACCESS_ERR']);
  });

  test('X5: keys have to be of the protection domain of the SRQ that the request names', () => {
    for (const [which, status] of [
      ['own', 'SUCCESS'],
      ['other', 'REM_ACCESS_ERR'],
    ] as const) {
      const { right, connect, send, sent, to, createSrq } = open();
      const srqs = { own: createSrq(), other: createSrq({ pd: right.adapter.allocPd() }) };
      connect();
      send(srqs[which].number!, { wrId: 1, opcode: 'RDMA_WRITE', remote: { addr: to.addr, rkey: to.rkey } });
      expect(sent()).toEqual([[1, status]]);
    }
  });

  test('X5: a READ that comes again is checked against the SRQ that it names, and disturbs no message', () => {
    const { pair, right, createSrq, connect, post, send, sent, to, from, received } = open({
      attr: { retryCnt: 7, timeout: 8 },
    });
    const [a, b] = [createSrq(), createSrq({ pd: right.adapter.allocPd() })];
    connect();
    post(b, 1, []);
    let lost = false;
    pair.fault = (packet) => {
      const drop = !lost && packet[0] === Opcode.XRC_RDMA_READ_RESPONSE_ONLY;
      lost ||= drop;
      return drop ? [] : [{ packet, delay: 0 }];
    };
    send(a.number!, {
      wrId: 1,
      opcode: 'RDMA_READ',
      sge: [{ mr: from, length: 8 }],
      remote: { addr: to.addr, rkey: to.rkey },
    });
    send(b.number!, { wrId: 2, sge: [] });
    expect(sent()).toEqual([
      [1, 'SUCCESS'],
      [2, 'SUCCESS'],
    ]);
    expect([lost, received()]).toEqual([true, [[1, 'SUCCESS']]]);
  });

  test('X7: no receive: RNR NAK, and success once one is posted; RNR_RETRY_EXC_ERR when none is', () => {
    const { pair, left, createSrq, connect, post, send, sent, received, stateOf } = open({
      attr: { rnrRetry: 7 },
    });
    const srq = createSrq();
    const { tgt } = connect();
    send(srq.number!, { wrId: 1 });
    pair.run(1000);
    expect(left.poll()).toEqual([]);
    post(srq, 9);
    expect(sent()).toEqual([[1, 'SUCCESS']]);
    expect(received()).toEqual([[9, 'SUCCESS']]);
    expect(stateOf(tgt.qpn)).toBe('RTS');

    const other = open();
    const empty = other.createSrq();
    other.connect();
    other.send(empty.number!, { wrId: 1 });
    expect(other.sent()).toEqual([[1, 'RNR_RETRY_EXC_ERR']]);
  });

  test('X7: a message that waits for a receive of one SRQ lets those of other targets pass', () => {
    const { left, pair, createSrq, connect, post, send, received } = open({
      attr: { rnrRetry: 7, minRnrTimer: 20 },
    });
    const [empty, full] = [createSrq(), createSrq()];
    const [a, b] = [connect(), connect()];
    post(full, 1);
    left.use(a.ini);
    send(empty.number!, { wrId: 1 });
    left.use(b.ini);
    send(full.number!, { wrId: 2 });
    pair.run(2000);
    expect(left.poll().map(({ wrId }) => wrId)).toEqual([2]);
    expect(received()).toEqual([[1, 'SUCCESS']]);
  });

  test('X8: the target’s own flags allow operations, and the region’s', () => {
    const statusOf = (qpAccessFlags: number, access: number) => {
      const { right, from, connect, send, sent, createSrq } = open({ attr: { qpAccessFlags } });
      const { addr, rkey } = right.register(new ArrayBuffer(64), access);
      const srq = createSrq();
      connect();
      send(srq.number!, {
        wrId: 1,
        opcode: 'RDMA_WRITE',
        sge: [{ mr: from, length: 8 }],
        remote: { addr, rkey },
      });
      return sent()[0][1];
    };
    expect([statusOf(0xe, 0x3), statusOf(0x4, 0x3), statusOf(0xe, 0x1)]).toEqual([
      'SUCCESS',
      'REM_INV_REQ_ERR',
      'REM_ACCESS_ERR',
    ]);
  });

  test('X9: a target in error answers nothing: RETRY_EXC_ERR', () => {
    const { right, createSrq, connect, post, send, sent, received, events } = open({
      attr: { timeout: 8 },
    });
    const srq = createSrq();
    const { tgt } = connect();
    post(srq, 1);
    right.adapter.modifyQp(tgt.qpn, { qpState: 'ERR' });
    // It belongs to no SRQ: LAST_WQE_REACHED is not for it.
    expect(events()).toEqual([]);
    send(srq.number!, { wrId: 1 });
    expect(sent()).toEqual([[1, 'RETRY_EXC_ERR']]);
    expect([received(), srq.entries.used]).toEqual([[], 1]);
  });

  test('X9: a target that goes to the error state in the middle of a message flushes the receive in use', () => {
    const { pair, right, createSrq, connect, post, send, received, from } = open();
    const srq = createSrq();
    const { tgt } = connect();
    post(srq, 1);
    pair.fault = (packet) => (packet[0] === Opcode.XRC_SEND_LAST ? [] : [{ packet, delay: 0 }]);
    send(srq.number!, { sge: [{ mr: from, length: 3000 }] });
    pair.run(100);
    right.adapter.modifyQp(tgt.qpn, { qpState: 'ERR' });
    expect(received()).toEqual([[1, 'WR_FLUSH_ERR']]);
  });

  test('X10: an SRQ that is destroyed is unknown; its receives go without completions', () => {
    const { right, createSrq, connect, post, send, sent, received, events } = open();
    const srq = createSrq();
    connect();
    post(srq, 1);
    post(srq, 2);
    send(srq.number!, { wrId: 1 });
    expect(sent()).toEqual([[1, 'SUCCESS']]);
    right.adapter.destroySrq(srq.handle);
    send(srq.number!, { wrId: 2 });
    expect(sent()).toEqual([[2, 'REM_INV_REQ_ERR']]);
    expect([received(), events()]).toEqual([[[1, 'SUCCESS']], ['QP_ACCESS_ERR']]);
  });

  test.each(['SEND', 'RDMA_WRITE'] as const)('X10: and so in the middle of a %s', (opcode) => {
    const { pair, right, createSrq, connect, post, send, sent, received, from, to } = open({
      attr: { retryCnt: 7, timeout: 8 },
    });
    const srq = createSrq();
    connect();
    post(srq, 1);
    let held = true;
    pair.fault = (packet) =>
      held && opcodeInfo(packet[0])!.key.endsWith('_LAST') ? [] : [{ packet, delay: 0 }];
    send(srq.number!, {
      wrId: 1,
      opcode,
      sge: [{ mr: from, length: 3000 }],
      remote: { addr: to.addr, rkey: to.rkey },
    });
    pair.run(100);
    right.adapter.destroySrq(srq.handle);
    held = false;
    expect(sent()).toEqual([[1, 'REM_INV_REQ_ERR']]);
    expect(received()).toEqual([]);
  });

  test('X11: initiators take no requests, targets send none and drop responses', () => {
    const { pair, left, createSrq, connect, post, send, sent } = open();
    const srq = createSrq();
    const { ini } = connect();
    post(srq, 1);
    pair.fault = (packet) => {
      // Back to the initiator, as if its target had asked.
      if (packet[0] !== Opcode.XRC_ACKNOWLEDGE) return [{ packet, delay: 0 }];
      const request = Uint8Array.from([...packet.slice(0, 12), 0, 0, 0, 1]);
      request[0] = Opcode.XRC_SEND_ONLY;
      return [
        { packet: request, delay: 0 },
        { packet, delay: 1 },
      ];
    };
    send(srq.number!, { wrId: 1 });
    expect(sent()).toEqual([[1, 'SUCCESS']]);
    expect(left.adapter.qpCounters(ini.qpn).droppedPackets).toBe(1);
  });
});

describe('objects', () => {
  test('X15: refused without experimental', () => {
    const { left } = new Pair();
    const refused = { errno: 'EOPNOTSUPP' };
    expect(() => left.adapter.openXrcd({})).toThrow(
      expect.objectContaining({ ...refused, attribute: 'xrcd' }),
    );
    expect(() => left.createQp({}, { type: 'XRC_INI' })).toThrow(
      expect.objectContaining({ ...refused, attribute: 'type' }),
    );
  });

  test('X13: a domain that is named is shared; create and exclusive as ibv_open_xrcd(3)', () => {
    const { right } = open();
    const { adapter } = right;
    expect(() => adapter.openXrcd({ name: 'a', create: false })).toThrow(
      expect.objectContaining({ errno: 'EAGAIN' }),
    );
    const first = adapter.openXrcd({ name: 'a' });
    const second = adapter.openXrcd({ name: 'a', create: false });
    expect(() => adapter.openXrcd({ name: 'a', exclusive: true })).toThrow(
      expect.objectContaining({ errno: 'EINVAL' }),
    );
    const target = adapter.createXrcTarget(first);
    const again = adapter.openXrcTarget(second, target.qpn);
    expect(again.qpn).toBe(target.qpn);
    expect(() => adapter.openXrcTarget(adapter.openXrcd({}), target.qpn)).toThrow(
      expect.objectContaining({ errno: 'EINVAL' }),
    );
    adapter.closeXrcTarget(target.handle);
    expect(adapter.queryQp(target.qpn).attr.qpState).toBe('RESET');
    adapter.closeXrcd(first);
    expect(() => adapter.closeXrcd(second)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
    adapter.closeXrcTarget(again.handle);
    expect(() => adapter.queryQp(target.qpn)).toThrow(expect.objectContaining({ errno: 'EINVAL' }));
    adapter.closeXrcd(second);
    expect(() => adapter.openXrcd({ name: 'a', create: false })).toThrow(
      expect.objectContaining({ errno: 'EAGAIN' }),
    );
  });

  test('X13: EBUSY for objects in use: domain, completion queue, protection domain', () => {
    const { right, domain, createSrq } = open();
    const { adapter } = right;
    const cq = adapter.createCq(4);
    const pd = adapter.allocPd();
    const srq = createSrq({ cq: cq.handle, pd });
    const busy = expect.objectContaining({ errno: 'EBUSY' });
    expect(() => adapter.destroyCq(cq.handle)).toThrow(busy);
    expect(() => adapter.deallocPd(pd)).toThrow(busy);
    expect(() => adapter.closeXrcd(domain)).toThrow(busy);
    adapter.destroySrq(srq.handle);
    adapter.destroyCq(cq.handle);
    adapter.deallocPd(pd);
    adapter.closeXrcd(domain);
    expect(() => adapter.createXrcTarget(domain)).toThrow(
      expect.objectContaining({ errno: 'EINVAL', attribute: 'xrcd' }),
    );
  });

  test('numbers of SRQs are of 24 bits, not 0, and differ', () => {
    const { createSrq } = open();
    const numbers = Array.from({ length: 200 }, () => createSrq().number!);
    expect(new Set(numbers).size).toBe(200);
    expect(numbers.every((n) => n > 0 && n < 2 ** 24)).toBe(true);
  });

  test('an initiator has no receive queue, a target no queues; neither takes an SRQ of the other kind', () => {
    const { left, right, createSrq, connect } = open();
    const srq = createSrq();
    const { ini, tgt } = connect();
    expect(ini.cap).toMatchObject({ maxRecvWr: 0, maxRecvSge: 0 });
    expect(() => right.createQp({}, { type: 'RC', srq: srq.handle })).toThrow(
      expect.objectContaining({ attribute: 'srq' }),
    );
    expect(() => right.createQp({}, { type: 'XRC_INI', srq: srq.handle })).toThrow(
      expect.objectContaining({ attribute: 'srq' }),
    );
    expect(() => right.createQp({}, { type: 'XRC_TGT' })).toThrow(
      expect.objectContaining({ errno: 'EOPNOTSUPP' }),
    );
    expect(() => right.adapter.destroyQp(tgt.qpn)).toThrow(expect.objectContaining({ errno: 'EINVAL' }));
    expect(left.adapter.queryQp(ini.qpn).attr).toMatchObject({ qpState: 'RTS', retryCnt: 1 });
    expect(left.adapter.queryQp(ini.qpn).attr).not.toHaveProperty('maxDestRdAtomic');
    expect(right.adapter.queryQp(tgt.qpn).attr).toMatchObject({
      qpState: 'RTS',
      maxDestRdAtomic: 16,
      timeout: 14,
    });
    expect(right.adapter.queryQp(tgt.qpn).attr).not.toHaveProperty('retryCnt');
  });

  test('a target is reset and connected again; its initiator is resized', () => {
    const { pair, left, right, createSrq, connect, post, send, sent, received } = open();
    const srq = createSrq();
    const { ini, tgt } = connect();
    for (const round of [1, 2]) {
      post(srq, round);
      send(srq.number!, { wrId: round });
      expect(sent()).toEqual([[round, 'SUCCESS']]);
      expect(received()).toEqual([[round, 'SUCCESS']]);
      left.adapter.modifyQp(ini.qpn, { qpState: 'RESET' });
      right.adapter.modifyQp(tgt.qpn, { qpState: 'RESET' });
      right.qp = { ...right.qp, qpn: tgt.qpn };
      pair.connect({ psn: [round * 100, round * 200] });
      left.use(ini);
    }
    const resized = left.adapter.modifyQp(ini.qpn, { cap: { ...ini.cap, maxSendWr: 256 } });
    expect(resized?.cap).toMatchObject({ maxSendWr: 256, maxRecvWr: 0 });
  });
});
