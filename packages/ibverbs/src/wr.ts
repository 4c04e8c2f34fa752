/**
 * Extended posting (ibv_wr_post(3)): a batch is started, requests are built and filled in, and it is posted as a whole or not at
 * all. Builders and setters report no errors; `ibv_wr_complete` does.
 */
import { invalid, RoceError, WR_OPCODES } from '@node-roce/transport';
import type { AnySendWr, SendWr } from '@node-roce/verbs-api';
import { integer, structs, word64 } from './arguments.ts';
import * as c from './constants.ts';
import { statusNow } from './errno.ts';
import { rangeOf } from './memory.ts';
import { checkKind, type ibv_ah, type ibv_mw, type ibv_qp, verbsOf } from './objects.ts';
import * as p from './placement-constants.ts';
import type { ibv_data_buf, ibv_mw_bind_info, ibv_sge, Memory } from './structs.ts';
import { element, inlineBytes } from './work-request.ts';

/** Operations by the flag that a queue pair is created with; of a queue pair that has no such flags none may be posted so. */
const OPERATIONS = {
  RDMA_WRITE: c.IBV_QP_EX_WITH_RDMA_WRITE,
  RDMA_WRITE_WITH_IMM: c.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
  SEND: c.IBV_QP_EX_WITH_SEND,
  SEND_WITH_IMM: c.IBV_QP_EX_WITH_SEND_WITH_IMM,
  RDMA_READ: c.IBV_QP_EX_WITH_RDMA_READ,
  ATOMIC_CMP_AND_SWP: c.IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
  ATOMIC_FETCH_AND_ADD: c.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
  LOCAL_INV: c.IBV_QP_EX_WITH_LOCAL_INV,
  BIND_MW: c.IBV_QP_EX_WITH_BIND_MW,
  SEND_WITH_INV: c.IBV_QP_EX_WITH_SEND_WITH_INV,
  FLUSH: p.IBV_QP_EX_WITH_FLUSH,
  ATOMIC_WRITE: p.IBV_QP_EX_WITH_ATOMIC_WRITE,
} as const;
type Operation = keyof typeof OPERATIONS;
const ALL_OPERATIONS = Object.values(OPERATIONS).reduce((bits, bit) => bits | bit, 0);
const SOLICITING = new Set(WR_OPCODES.filter((row) => row?.consumesReceive).map((row) => row.name));

const extended = new WeakMap<ibv_qp, ibv_qp_ex>();

/** Throws EINVAL for a bit that stands for no operation, EOPNOTSUPP for segmentation of TCP. */
export function checkSendOps(operations: number): void {
  const rest = operations & ~ALL_OPERATIONS;
  if (rest === 0) return;
  const isTso = rest === c.IBV_QP_EX_WITH_TSO;
  throw new RoceError(
    isTso ? 'ERR_ROCE_NOT_SUPPORTED' : 'ERR_ROCE_INVALID_ATTRIBUTE',
    `send_ops_flags: 0x${rest.toString(16)} ${isTso ? 'needs hardware' : 'is unknown'}`,
    {
      errno: isTso ? 'EOPNOTSUPP' : 'EINVAL',
      attribute: 'send_ops_flags',
      expected: 'IBV_QP_EX_WITH_… bits',
    },
  );
}

/** The operations of a queue pair of `ibv_create_qp_ex`; with none, it is posted to by `ibv_post_send` alone. */
export function allowSendOps(qp: ibv_qp, operations: number): void {
  if (operations !== 0) extended.set(qp, new ibv_qp_ex(qp, operations));
}

/** `struct ibv_qp_ex`: a queue pair with its batch. */
export class ibv_qp_ex {
  readonly qp_base: ibv_qp;
  readonly comp_mask = 0;
  /** Of the requests that are built from now on. */
  wr_id: bigint | number = 0n;
  /** IBV_SEND_… bits, likewise; IBV_SEND_INLINE goes by the setter. */
  wr_flags = 0;
  readonly #operations: number;
  #batch: AnySendWr[] | undefined;
  /** The first thing that was wrong. */
  #error: unknown;

  constructor(qp: ibv_qp, operations: number) {
    this.qp_base = qp;
    this.#operations = operations;
  }

  /** @internal */
  start(): void {
    this.#error = this.#batch ? invalid('qp', 'a batch is started already', 'ibv_wr_complete') : undefined;
    this.#batch = [];
  }

  /** Ends the batch: the requests, or throws what was wrong. @internal */
  end(): SendWr[] {
    const batch = this.#batch;
    const error = this.#error;
    this.#batch = this.#error = undefined;
    if (error) throw error;
    if (!batch) throw invalid('qp', 'no batch is started', 'ibv_wr_start');
    return batch as SendWr[];
  }

  /** Forgets the batch. @internal */
  abort(): void {
    this.#batch = this.#error = undefined;
  }

  /** Begins a request. @internal */
  build(opcode: Operation, members: () => Partial<AnySendWr>): void {
    this.#attempt((batch) => {
      if ((this.#operations & OPERATIONS[opcode]) === 0) {
        throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `opcode: ${opcode} is not in send_ops_flags`, {
          errno: 'EOPNOTSUPP',
          attribute: 'opcode',
        });
      }
      const wr_flags = integer('wr_flags', this.wr_flags);
      if ((wr_flags & c.IBV_SEND_IP_CSUM) !== 0) {
        throw new RoceError('ERR_ROCE_NOT_SUPPORTED', 'wr_flags: IBV_SEND_IP_CSUM', {
          errno: 'EOPNOTSUPP',
          attribute: 'wr_flags',
        });
      }
      batch.push({
        opcode,
        wrId: this.wr_id,
        signaled: (wr_flags & c.IBV_SEND_SIGNALED) !== 0,
        fence: (wr_flags & c.IBV_SEND_FENCE) !== 0,
        solicited: SOLICITING.has(opcode) && (wr_flags & c.IBV_SEND_SOLICITED) !== 0,
        ...members(),
      });
    });
  }

  /** Fills in the request that was begun last. @internal */
  set(members: () => Partial<AnySendWr>): void {
    this.#attempt((batch) => {
      const wr = batch.at(-1);
      if (!wr) throw invalid('qp', 'no request is begun', 'a builder before the setter');
      Object.assign(wr, members());
    });
  }

  #attempt(act: (batch: AnySendWr[]) => void): void {
    if (this.#error) return;
    try {
      if (!this.#batch) throw invalid('qp', 'no batch is started', 'ibv_wr_start');
      act(this.#batch);
    } catch (error) {
      this.#error = error;
    }
  }
}

/** ibv_qp_to_qp_ex(3): null for a queue pair that was not created for extended posting. */
export function ibv_qp_to_qp_ex(qp: ibv_qp): ibv_qp_ex | null {
  return extended.get(qp) ?? null;
}

/** ibv_wr_start(3): the requests that are built from now on are one batch. */
export function ibv_wr_start(qp: ibv_qp_ex): void {
  qp.start();
}

/** ibv_wr_complete(3): posts all of the batch or, with an errno, nothing. `lastError()` returns the first error. */
export function ibv_wr_complete(qp: ibv_qp_ex): number {
  return statusNow(() => {
    checkKind('qp', qp, ibv_qp_ex);
    verbsOf('qp', qp.qp_base).postBatch(qp.end());
  });
}

/** ibv_wr_abort(3): nothing of the batch is posted. */
export function ibv_wr_abort(qp: ibv_qp_ex): void {
  qp.abort();
}

const remote = (rkey: number, remote_addr: bigint | number) => ({
  remote: { addr: word64('remote_addr', remote_addr), rkey },
});

/** ibv_wr_send(3). */
export function ibv_wr_send(qp: ibv_qp_ex): void {
  qp.build('SEND', () => ({}));
}

/** ibv_wr_send_imm(3). `imm_data` is the number that travels in network order. */
export function ibv_wr_send_imm(qp: ibv_qp_ex, imm_data: number): void {
  qp.build('SEND_WITH_IMM', () => ({ immData: imm_data }));
}

/** ibv_wr_send_inv(3). */
export function ibv_wr_send_inv(qp: ibv_qp_ex, invalidate_rkey: number): void {
  qp.build('SEND_WITH_INV', () => ({ invalidateRkey: invalidate_rkey }));
}

/** ibv_wr_rdma_write(3). */
export function ibv_wr_rdma_write(qp: ibv_qp_ex, rkey: number, remote_addr: bigint | number): void {
  qp.build('RDMA_WRITE', () => remote(rkey, remote_addr));
}

/** ibv_wr_rdma_write_imm(3). */
export function ibv_wr_rdma_write_imm(
  qp: ibv_qp_ex,
  rkey: number,
  remote_addr: bigint | number,
  imm_data: number,
): void {
  qp.build('RDMA_WRITE_WITH_IMM', () => ({ ...remote(rkey, remote_addr), immData: imm_data }));
}

/** ibv_wr_rdma_read(3). */
export function ibv_wr_rdma_read(qp: ibv_qp_ex, rkey: number, remote_addr: bigint | number): void {
  qp.build('RDMA_READ', () => remote(rkey, remote_addr));
}

/** ibv_wr_atomic_cmp_swp(3). */
export function ibv_wr_atomic_cmp_swp(
  qp: ibv_qp_ex,
  rkey: number,
  remote_addr: bigint | number,
  compare: bigint | number,
  swap: bigint | number,
): void {
  qp.build('ATOMIC_CMP_AND_SWP', () => ({ ...remote(rkey, remote_addr), compareAdd: compare, swap }));
}

/** ibv_wr_atomic_fetch_add(3). */
export function ibv_wr_atomic_fetch_add(
  qp: ibv_qp_ex,
  rkey: number,
  remote_addr: bigint | number,
  add: bigint | number,
): void {
  qp.build('ATOMIC_FETCH_AND_ADD', () => ({ ...remote(rkey, remote_addr), compareAdd: add }));
}

/** ibv_wr_atomic_write(3). @param atomic_wr 8 bytes, which are copied */
export function ibv_wr_atomic_write(
  qp: ibv_qp_ex,
  rkey: number,
  remote_addr: bigint | number,
  atomic_wr: Memory,
): void {
  qp.build('ATOMIC_WRITE', () => ({
    ...remote(rkey, remote_addr),
    inline: true,
    sgList: [copyOf(qp, atomic_wr, 8)],
  }));
}

/** ibv_wr_flush(3). @param type IBV_FLUSH_GLOBAL or IBV_FLUSH_PERSISTENT @param level IBV_FLUSH_RANGE or IBV_FLUSH_MR */
export function ibv_wr_flush(
  qp: ibv_qp_ex,
  rkey: number,
  remote_addr: bigint | number,
  len: number,
  type: number,
  level: number,
): void {
  qp.build('FLUSH', () => {
    if (type !== p.IBV_FLUSH_GLOBAL && type !== p.IBV_FLUSH_PERSISTENT)
      throw invalid('type', `${type}`, 'IBV_FLUSH_GLOBAL or IBV_FLUSH_PERSISTENT');
    if (level !== p.IBV_FLUSH_RANGE && level !== p.IBV_FLUSH_MR)
      throw invalid('level', `${level}`, 'IBV_FLUSH_RANGE or IBV_FLUSH_MR');
    const flush = {
      length: len,
      type: type === p.IBV_FLUSH_GLOBAL ? 'GLOBAL' : 'PERSISTENT',
      level: level === p.IBV_FLUSH_RANGE ? 'RANGE' : 'MR',
    } as const;
    return { ...remote(rkey, remote_addr), flush };
  });
}

/** ibv_wr_local_inv(3). */
export function ibv_wr_local_inv(qp: ibv_qp_ex, invalidate_rkey: number): void {
  qp.build('LOCAL_INV', () => ({ invalidateRkey: invalidate_rkey }));
}

/** ibv_wr_bind_mw(3): a window of type 2, under a new key. */
export function ibv_wr_bind_mw(qp: ibv_qp_ex, mw: ibv_mw, rkey: number, bind_info: ibv_mw_bind_info): void {
  qp.build('BIND_MW', () => ({ bind: { mw: verbsOf('mw', mw), rkey, ...rangeOf(bind_info) } }));
}

/** ibv_wr_set_sge(3). */
export function ibv_wr_set_sge(qp: ibv_qp_ex, lkey: number, addr: ibv_sge['addr'], length: number): void {
  ibv_wr_set_sge_list(qp, 1, [{ lkey, addr, length }]);
}

/** ibv_wr_set_sge_list(3): the first `num_sge` of the list. */
export function ibv_wr_set_sge_list(qp: ibv_qp_ex, num_sge: number, sg_list: readonly ibv_sge[]): void {
  qp.set(() => {
    const list = structs('sg_list', sg_list, 'num_sge', num_sge);
    return { sgList: list.map((sge) => element(qp.qp_base.pd, sge)), inline: false };
  });
}

/** ibv_wr_set_inline_data(3): the bytes are copied now. */
export function ibv_wr_set_inline_data(qp: ibv_qp_ex, addr: Memory, length: number): void {
  ibv_wr_set_inline_data_list(qp, 1, [{ addr, length }]);
}

/** ibv_wr_set_inline_data_list(3): the first `num_buf` of the list, copied now. */
export function ibv_wr_set_inline_data_list(
  qp: ibv_qp_ex,
  num_buf: number,
  buf_list: readonly ibv_data_buf[],
): void {
  qp.set(() => {
    const list = structs('buf_list', buf_list, 'num_buf', num_buf);
    const sgList = list.map(({ addr, length }) => copyOf(qp, addr, length));
    return { sgList, inline: true };
  });
}

/** ibv_wr_set_ud_addr(3). */
export function ibv_wr_set_ud_addr(qp: ibv_qp_ex, ah: ibv_ah, remote_qpn: number, remote_qkey: number): void {
  qp.set(() => ({ ud: { ah: verbsOf('ah', ah), remoteQpn: remote_qpn, remoteQkey: remote_qkey } }));
}

/** ibv_wr_set_xrc_srqn(3). */
export function ibv_wr_set_xrc_srqn(qp: ibv_qp_ex, remote_srqn: number): void {
  qp.set(() => ({ remoteSrqn: remote_srqn }));
}

const copyOf = ({ qp_base }: ibv_qp_ex, addr: Memory, length: number) =>
  inlineBytes(qp_base.pd, { addr, length }).slice();
