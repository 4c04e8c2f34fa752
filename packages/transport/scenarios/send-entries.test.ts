/** Send entries that can't be executed: the status of each, and that nothing of it leaves (IBTA vol 1 §11.6.2, ibv_post_send(3)). */
import { beforeEach, describe, expect, test } from 'vitest';
import { Access, type MrCreated, type QpType, SendFlags, SendWqe } from '../src/index.ts';
import { ByHand } from '../testing/by-hand.ts';
import { addressOf, QKEY, type Side, type WorkInit } from '../testing/pair.ts';

const remote = { addr: 0n, rkey: 1 };
let hand: ByHand;
let side: Side;
let mr: MrCreated;

beforeEach(() => {
  hand = new ByHand({}, { limits: { maxMessageSize: 2048 } });
  ({ side } = hand);
  mr = side.register(new ArrayBuffer(8192));
});

/** Posts one request, whose entry is changed before the engine looks at it; its status if it fails, else `sent`. */
function outcome(work: WorkInit, change: (words: Uint32Array, w: number) => void = () => {}): string {
  const { sq } = side;
  side.post(work);
  change(sq.words, sq.wordOf((sq.producer - 1) | 0));
  const sent = hand.out();
  const [done] = side.poll();
  if (done === undefined || done.status === 'SUCCESS') return sent.length > 0 ? 'sent' : 'nothing';
  expect(sent).toEqual([]);
  return done.status;
}

const list = (...lengths: number[]) => lengths.map((length) => ({ mr, length }));

/** Another queue pair takes the place of the one that a failure ended. */
function connect(type: QpType, cap = {}): void {
  side.createQp(cap, { type });
  const { adapter, qp } = side;
  const modify = (attr: object) => adapter.modifyQp(qp.qpn, attr);
  if (type === 'RC') hand.connect();
  else if (type === 'UC') {
    modify({ qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0xe });
    modify({ qpState: 'RTR', ahAttr: addressOf(1), pathMtu: 1024, destQpNum: 77, rqPsn: 0 });
    modify({ qpState: 'RTS', sqPsn: 0 });
  } else {
    modify({ qpState: 'INIT', pkeyIndex: 0, portNum: 1, qkey: QKEY });
    modify({ qpState: 'RTR' });
    modify({ qpState: 'RTS', sqPsn: 0 });
  }
}

describe('the operation', () => {
  const all = [
    'RDMA_WRITE',
    'RDMA_WRITE_WITH_IMM',
    'SEND',
    'SEND_WITH_IMM',
    'RDMA_READ',
    'ATOMIC_CMP_AND_SWP',
    'ATOMIC_FETCH_AND_ADD',
    'SEND_WITH_INV',
  ] as const;
  const UD = ['SEND', 'SEND_WITH_IMM'];
  const offered: Record<'RC' | 'UC' | 'UD' | 'GSI', string[]> = {
    RC: [...all],
    UC: [...UD, 'RDMA_WRITE', 'RDMA_WRITE_WITH_IMM'],
    UD,
    GSI: UD,
  };

  test.each(['RC', 'UC', 'UD', 'GSI'] as const)('is one that %s offers', (type) => {
    for (const opcode of all) {
      connect(type);
      const { qpn } = side.qp;
      const datagram = { ah: side.adapter.createAh(side.pd, addressOf(1)), qpn: 5, qkey: QKEY };
      const work = { opcode, sge: list(8), remote, ...(type === 'UD' || type === 'GSI' ? { datagram } : {}) };
      expect(outcome(work), opcode).toBe(offered[type].includes(opcode) ? 'sent' : 'LOC_QP_OP_ERR');
      side.adapter.destroyQp(qpn);
    }
  });

  test.each([10, 11, 0xff])('has a number that is defined: %i is not', (opcode) => {
    for (const sge of [[], list(8)]) {
      expect(outcome({ opcode: 'SEND', sge }, (words, w) => (words[w] = opcode))).toBe('LOC_QP_OP_ERR');
      connect('RC');
    }
  });

  test.each(['RDMA_READ', 'ATOMIC_FETCH_AND_ADD'] as const)('%s needs max_rd_atomic', (opcode) => {
    side.createQp();
    hand.connect({ maxRdAtomic: 0 });
    expect(outcome({ opcode, sge: list(8), remote })).toBe('LOC_QP_OP_ERR');
    connect('RC');
    expect(outcome({ opcode, sge: list(8), remote })).toBe('sent');
  });
});

describe('the length', () => {
  test.each<[QpType, number]>([
    ['RC', 2048],
    ['UC', 2048],
    ['UD', 4096],
  ])('of %s is %i bytes at most', (type, most) => {
    const work = (length: number): WorkInit => {
      connect(type);
      const ah = side.adapter.createAh(side.pd, addressOf(1));
      return {
        opcode: 'SEND',
        sge: list(length),
        ...(type === 'UD' ? { datagram: { ah, qpn: 5, qkey: QKEY } } : {}),
      };
    };
    expect(outcome(work(most))).toBe('sent');
    expect(outcome(work(most + 1))).toBe('LOC_LEN_ERR');
    expect(outcome(work(0))).toBe('sent');
  });

  test.each([0, 7, 9, 16])('of an atomic is 8, not %i', (length) => {
    expect(outcome({ opcode: 'ATOMIC_FETCH_AND_ADD', sge: list(length), remote })).toBe('LOC_LEN_ERR');
  });

  test.each([-1, 1])('is that of the list, not %i more', (more) => {
    const change = (words: Uint32Array, w: number) => (words[w + SendWqe.LENGTH] += more);
    expect(outcome({ opcode: 'SEND', sge: list(5, 0, 7) }, change)).toBe('LOC_LEN_ERR');
  });
});

describe('inline data', () => {
  const inline = (length: number) => new Uint8Array(length);

  test.each(['SEND', 'RDMA_WRITE'] as const)('of a %s: as much as the queue pair has room for', (opcode) => {
    expect(outcome({ opcode, inline: inline(128), remote })).toBe('sent');
    connect('RC');
    const change = (words: Uint32Array, w: number) => (words[w + SendWqe.LENGTH] = 129);
    expect(outcome({ opcode, inline: inline(128), remote }, change)).toBe('LOC_QP_OP_ERR');
  });

  test('is no place for what a READ brings', () => {
    expect(outcome({ opcode: 'RDMA_READ', inline: inline(8), remote })).toBe('LOC_QP_OP_ERR');
  });
});

describe('the list', () => {
  test('has as many elements as the queue pair allows', () => {
    expect(outcome({ opcode: 'SEND', sge: list(1, 1, 1, 1) })).toBe('sent');
    connect('RC');
    const change = (words: Uint32Array, w: number) => (words[w + SendWqe.SGE_COUNT] = 5);
    expect(outcome({ opcode: 'SEND', sge: list(1, 1, 1, 1) }, change)).toBe('LOC_QP_OP_ERR');
  });

  test.each<[string, () => MrCreated]>([
    ['with a key that there is not', () => ({ ...mr, lkey: (mr.lkey ^ 1) >>> 0 })],
    ['outside of its region', () => ({ ...mr, addr: mr.addr + 8185n })],
    ['before its region', () => ({ ...mr, addr: mr.addr - 1n })],
  ])('names no memory %s; an element of nothing needs none', (_what, make) => {
    const wrong = make();
    expect(outcome({ opcode: 'SEND', sge: [...list(8), { mr: wrong, length: 0 }] })).toBe('sent');
    connect('RC');
    expect(outcome({ opcode: 'SEND', sge: [...list(8), { mr: wrong, length: 8 }] })).toBe('LOC_PROT_ERR');
  });

  test('of what receives data names memory that may be written', () => {
    const readOnly = side.register(new ArrayBuffer(64), Access.REMOTE_READ);
    expect(outcome({ opcode: 'RDMA_WRITE', sge: [{ mr: readOnly, length: 8 }], remote })).toBe('sent');
    connect('RC');
    expect(outcome({ opcode: 'RDMA_READ', sge: [{ mr: readOnly, length: 8 }], remote })).toBe('LOC_PROT_ERR');
  });
});

test('the address handle of a datagram is of the queue pair’s PD', () => {
  connect('UD');
  const { adapter, pd } = side;
  const send = (ah: number) =>
    outcome({ opcode: 'SEND', sge: list(8), datagram: { ah, qpn: 5, qkey: QKEY } });
  expect(send(adapter.createAh(pd, addressOf(1)))).toBe('sent');
  expect(send(adapter.createAh(adapter.allocPd(), addressOf(1)))).toBe('LOC_QP_OP_ERR');
  connect('UD');
  expect(send(999)).toBe('LOC_QP_OP_ERR');
});

describe('a fence', () => {
  test('waits for the READs and atomics before it, and for nothing else (§10.8.3.3)', () => {
    const write = (flags = 0) => side.post({ opcode: 'RDMA_WRITE', sge: list(8), remote, flags });
    write();
    write(SendFlags.FENCE);
    expect(hand.out()).toHaveLength(2);
    side.post({ opcode: 'RDMA_READ', sge: list(8), remote });
    write(SendFlags.FENCE);
    write();
    expect(hand.out()).toHaveLength(1);
  });

  test('of an operation that there is not holds nothing up', () => {
    side.post({ opcode: 'RDMA_READ', sge: list(8), remote });
    hand.out();
    const change = (words: Uint32Array, w: number) => (words[w] = 0xff | (SendFlags.FENCE << 8));
    side.post({ wrId: 2, opcode: 'SEND', sge: [] });
    change(side.sq.words, side.sq.wordOf(1));
    hand.out();
    expect(side.poll()).toEqual([]); // It fails after the READ.
  });
});
