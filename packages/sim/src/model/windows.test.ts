import { Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { checkAccess, type ModelMemory, type ModelRegion, RemoteRight } from './memory.ts';
import type { ModelPacket } from './packet.ts';
import { ModelQp } from './rc-qp.ts';
import { ModelAccess } from './verbs.ts';
import { bindWindow, invalidate, isBound, type ModelWindow, type WindowBind } from './windows.ts';

const QPN = 1;
const ALL =
  ModelAccess.LOCAL_WRITE | ModelAccess.REMOTE_WRITE | ModelAccess.REMOTE_READ | ModelAccess.MW_BIND;

function setUp(type: 1 | 2, access = ALL) {
  const region: ModelRegion = {
    rkey: 5,
    base: 0x1000n,
    bytes: new Uint8Array(4096),
    access,
    invalidatable: false,
  };
  const memory: ModelMemory = { regions: [region] };
  const window: ModelWindow = { type, rkey: 0x1200 };
  const bind = (change: Partial<WindowBind> = {}) => ({
    window,
    rkey: 0x1201,
    region,
    va: 0x1100n,
    length: 256,
    access: ModelAccess.REMOTE_WRITE,
    ...change,
  });
  return { region, memory, window, bind };
}

const writable = (memory: ModelMemory, rkey: number, va: bigint, length = 1, qpn = QPN) =>
  checkAccess(memory, rkey, va, length, RemoteRight.WRITE, qpn);

describe('a bound window', () => {
  test('shows its part of the region, with its own rights and not the region’s', () => {
    const { memory, bind } = setUp(2);
    expect(bindWindow(memory, bind(), QPN)).toBeUndefined();
    expect(writable(memory, 0x1201, 0x1100n, 256)).toBeUndefined();
    expect(writable(memory, 0x1201, 0x1100n, 257)).toBe('range');
    expect(writable(memory, 0x1201, 0x10ffn)).toBe('range');
    expect(checkAccess(memory, 0x1201, 0x1100n, 1, RemoteRight.READ, QPN)).toBe('right');
    expect(writable(memory, 0x1200, 0x1100n)).toBe('key');
  });

  test('of type 2B serves the queue pair it was bound through, of type 1 every one', () => {
    for (const [type, fault] of [
      [1, undefined],
      [2, 'key'],
    ] as const) {
      const { memory, bind } = setUp(type);
      bindWindow(memory, bind(), QPN);
      expect(writable(memory, 0x1201, 0x1100n, 1, QPN + 1)).toBe(fault);
    }
  });

  test('may count from zero', () => {
    const { memory, region, bind } = setUp(2);
    bindWindow(memory, bind({ access: ModelAccess.REMOTE_WRITE | ModelAccess.ZERO_BASED }), QPN);
    expect(writable(memory, 0x1201, 0n, 256)).toBeUndefined();
    expect(writable(memory, 0x1201, 0x1100n)).toBe('range');
    expect(memory.regions[1].bytes.byteOffset).toBe(region.bytes.byteOffset + 0x100);
  });
});

describe('rules for a binding', () => {
  test.each<[string, 1 | 2, Partial<WindowBind>]>([
    ['the key does not belong to the window', 2, { rkey: 0x1301 }],
    ['C10-72: no region of the domain', 2, { region: undefined }],
    ['C10-75: not inside of the region', 1, { va: 0xfffn }],
    ['C10-75: not inside of the region', 2, { va: 0x1f01n }],
    ['o10-37.2.40: a type 2 window of no bytes', 2, { length: 0 }],
    ['o10-36.2.2: a type 1 window from zero', 1, { access: ModelAccess.ZERO_BASED }],
  ])('%s', (reason, type, change) => {
    const { memory, bind } = setUp(type);
    expect(bindWindow(memory, bind(change), QPN)).toBe(reason);
    expect(memory.regions.length).toBe(1);
  });

  test('C10-73, C10-74: a region that allows windows, and writing if the window does', () => {
    for (const [lacking, reason] of [
      [ModelAccess.MW_BIND, 'C10-73: the region allows no windows'],
      [ModelAccess.LOCAL_WRITE, 'C10-74: the region may not be written'],
    ] as const) {
      const { memory, bind } = setUp(2, ALL & ~lacking);
      expect(bindWindow(memory, bind(), QPN)).toBe(reason);
    }
    const { memory, bind } = setUp(2, ALL & ~ModelAccess.LOCAL_WRITE);
    expect(bindWindow(memory, bind({ access: ModelAccess.REMOTE_READ }), QPN)).toBeUndefined();
  });

  test('type 1 is bound again and unbound by binding; type 2 (o10-37.2.30) has to be free', () => {
    const one = setUp(1);
    bindWindow(one.memory, one.bind(), QPN);
    expect(bindWindow(one.memory, one.bind({ rkey: 0x1202 }), QPN)).toBeUndefined();
    expect(writable(one.memory, 0x1201, 0x1100n)).toBe('key');
    expect(writable(one.memory, 0x1202, 0x1100n)).toBeUndefined();
    expect(bindWindow(one.memory, one.bind({ rkey: 0x1203, length: 0 }), QPN)).toBeUndefined();
    expect(isBound(one.memory, one.window)).toBe(false);
    const two = setUp(2);
    bindWindow(two.memory, two.bind(), QPN);
    expect(bindWindow(two.memory, two.bind({ rkey: 0x1202 }), QPN)).toBe(
      'o10-37.2.30: a type 2 window that is bound',
    );
    expect(invalidate(two.memory, 0x1201, QPN)).toBe(true);
    expect(bindWindow(two.memory, two.bind({ rkey: 0x1202 }), QPN)).toBeUndefined();
  });
});

describe('invalidation', () => {
  test('ends type 2 windows of the queue pair, and nothing else', () => {
    const { memory, bind } = setUp(2);
    bindWindow(memory, bind(), QPN);
    expect(invalidate(memory, 5, QPN)).toBe(false);
    expect(invalidate(memory, 0x1201, QPN + 1)).toBe(false);
    expect(invalidate(memory, 0x1201, QPN)).toBe(true);
    expect(invalidate(memory, 0x1201, QPN)).toBe(false);
    const one = setUp(1);
    bindWindow(one.memory, one.bind(), QPN);
    expect(invalidate(one.memory, 0x1201, QPN)).toBe(false);
  });
});

describe('in the send queue', () => {
  const config = {
    qpn: QPN,
    destQpn: 2,
    pathMtu: 256,
    accessFlags: ALL,
    maxDestRdAtomic: 4,
    minRnrTimer: 1,
    flowControl: false,
    timeout: 10,
    retryCnt: 7,
    rnrRetry: 7,
    maxRdAtomic: 4,
    window: 128,
    timerFactor: 1,
    sqPsn: 100,
    rqPsn: 0,
  };
  const send = (wrId: number) => ({ wrId, opcode: 'SEND' as const, local: new Uint8Array(4) });
  const none = new Uint8Array(0);
  const ack = (psn: number, syndrome = 31): ModelPacket => ({
    opcode: Opcode.RC_ACKNOWLEDGE,
    destQpn: QPN,
    psn,
    ackReq: false,
    solicited: false,
    pkey: 0xffff,
    aeth: { syndrome, msn: 1 },
    payload: none,
  });

  test('BIND_MW takes no PSN, is done in its turn and completes in order', () => {
    const { memory, window, bind } = setUp(2);
    const qp = new ModelQp(config, memory);
    qp.postSend(send(1));
    qp.postSend({ wrId: 2, opcode: 'BIND_MW', local: none, bind: bind() });
    qp.postSend(send(3));
    expect(qp.transmit(0)?.psn).toBe(100);
    expect(isBound(memory, window)).toBe(false);
    expect(qp.transmit(0)?.psn).toBe(101);
    expect(isBound(memory, window)).toBe(true);
    expect(qp.transmit(0)).toBeUndefined();
    expect(qp.sendCompletions).toEqual([]);
    // Both SENDs are lost, and retransmitted: the window would not be bound twice.
    qp.receive(ack(100, 0x60), 1);
    expect([qp.transmit(1)?.psn, qp.transmit(1)?.psn]).toEqual([100, 101]);
    qp.receive(ack(101), 2);
    expect(qp.sendCompletions.map(({ wrId, opcode }) => [wrId, opcode])).toEqual([
      [1, 'SEND'],
      [2, 'BIND_MW'],
      [3, 'SEND'],
    ]);
  });

  test('one that fails ends the connection in its turn; nothing after it is sent', () => {
    const { memory } = setUp(2);
    const qp = new ModelQp(config, memory);
    qp.postSend(send(1));
    qp.postSend({ wrId: 2, opcode: 'LOCAL_INV', local: none, invalidateRkey: 5 });
    qp.postSend(send(3));
    expect(qp.transmit(0)?.psn).toBe(100);
    expect(qp.transmit(0)).toBeUndefined();
    expect(qp.state).toBe('RTS');
    qp.receive(ack(100), 1);
    expect(qp.state).toBe('ERR');
    expect(qp.sendCompletions.map(({ status }) => status)).toEqual([
      'SUCCESS',
      'MW_BIND_ERR',
      'WR_FLUSH_ERR',
    ]);
  });

  test('a fenced LOCAL_INV waits for the READ before it', () => {
    const { memory, bind } = setUp(2);
    bindWindow(memory, bind(), QPN);
    const qp = new ModelQp(config, memory);
    qp.postSend({ wrId: 1, opcode: 'RDMA_READ', local: new Uint8Array(1), remote: { va: 0n, rkey: 1 } });
    qp.postSend({ wrId: 2, opcode: 'LOCAL_INV', local: none, invalidateRkey: 0x1201, fence: true });
    qp.transmit(0);
    expect(qp.transmit(0)).toBeUndefined();
    expect(memory.regions.length).toBe(2);
    const response = { ...ack(100), opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, payload: new Uint8Array(1) };
    qp.receive(response, 1);
    qp.transmit(1);
    expect(memory.regions.length).toBe(1);
    expect(qp.sendCompletions.map(({ wrId }) => wrId)).toEqual([1, 2]);
  });
});
