/** Posting: chains of work requests, and what of them verbs-api takes. */
import { invalid, RoceError, WR_OPCODES } from '@node-roce/transport';
import type { AnySendWr, RecvWr, SendWr, SgElement } from '@node-roce/verbs-api';
import { integer, structs, word64 } from './arguments.ts';
import {
  IBV_QPT_XRC_SEND,
  IBV_SEND_FENCE,
  IBV_SEND_INLINE,
  IBV_SEND_IP_CSUM,
  IBV_SEND_SIGNALED,
  IBV_SEND_SOLICITED,
  IBV_WR_BIND_MW,
  IBV_WR_LOCAL_INV,
} from './constants.ts';
import { failed } from './errno.ts';
import { addressOf, bytesOf, rangeOf } from './memory.ts';
import { given, type ibv_pd, type ibv_qp, type ibv_srq, verbsOf } from './objects.ts';
import type { ibv_recv_wr, ibv_send_wr, ibv_sge } from './structs.ts';

/**
 * ibv_post_send(3): the chain of `wr`, in order. 0, or an errno (EINVAL: state or request; ENOMEM: the queue is full;
 * EOPNOTSUPP), and then `bad_wr[0]` is the first that was not posted.
 */
export function ibv_post_send(qp: ibv_qp, wr: ibv_send_wr, bad_wr?: (ibv_send_wr | null)[] | null): number {
  return postChain(wr, bad_wr, (one) => verbsOf('qp', qp).postSend(sendWr(qp, one)));
}

/** ibv_post_recv(3), as `ibv_post_send`. */
export function ibv_post_recv(qp: ibv_qp, wr: ibv_recv_wr, bad_wr?: (ibv_recv_wr | null)[] | null): number {
  return postChain(wr, bad_wr, (one) => verbsOf('qp', qp).postRecv(recvWr(qp.pd, one)));
}

/** ibv_post_srq_recv(3), as `ibv_post_send`. */
export function ibv_post_srq_recv(
  srq: ibv_srq,
  wr: ibv_recv_wr,
  bad_wr?: (ibv_recv_wr | null)[] | null,
): number {
  return postChain(wr, bad_wr, (one) => verbsOf('srq', srq).postRecv(recvWr(srq.pd, one)));
}

function postChain<T extends { next?: T | null }>(
  first: T,
  bad_wr: (T | null)[] | null | undefined,
  post: (wr: T) => void,
): number {
  let wr: T | null | undefined = first;
  try {
    given('wr', first);
    for (; wr; wr = wr.next) post(wr);
    return 0;
  } catch (error) {
    const code = failed(error);
    if (Array.isArray(bad_wr)) bad_wr[0] = wr ?? null;
    return code;
  }
}

function sendWr({ pd, qp_type }: ibv_qp, wr: ibv_send_wr): SendWr {
  const row = WR_OPCODES[wr.opcode];
  const send_flags = integer('send_flags', wr.send_flags);
  if (!row || (send_flags & IBV_SEND_IP_CSUM) !== 0) {
    throw new RoceError(
      'ERR_ROCE_NOT_SUPPORTED',
      row ? 'send_flags: IBV_SEND_IP_CSUM' : `opcode: ${wr.opcode}`,
      { errno: 'EOPNOTSUPP', attribute: row ? 'send_flags' : 'opcode' },
    );
  }
  const inline = (send_flags & IBV_SEND_INLINE) !== 0;
  const out: AnySendWr = {
    wrId: wr.wr_id ?? 0,
    opcode: row.name,
    sgList: elements(wr).map((sge) => (inline ? inlineBytes(pd, sge) : element(pd, sge))),
    signaled: (send_flags & IBV_SEND_SIGNALED) !== 0,
    fence: (send_flags & IBV_SEND_FENCE) !== 0,
    // Of others, the flag counts for nothing (ibv_post_send(3)).
    solicited: row.consumesReceive && (send_flags & IBV_SEND_SOLICITED) !== 0,
    inline,
  };
  if (row.immediate) out.immData = wr.imm_data ?? 0;
  else if (row.invalidate) out.invalidateRkey = wr.invalidate_rkey ?? 0;
  else if (wr.opcode === IBV_WR_BIND_MW) {
    const { bind_mw } = wr;
    if (!bind_mw) throw invalid('bind_mw', 'IBV_WR_BIND_MW needs it', '{ mw, rkey, bind_info }');
    out.bind = {
      mw: verbsOf('mw', bind_mw.mw, 'bind_mw.mw'),
      rkey: bind_mw.rkey,
      ...rangeOf(bind_mw.bind_info),
    };
  }
  // A union in C: of other types it means nothing.
  const leaves = wr.opcode !== IBV_WR_LOCAL_INV && wr.opcode !== IBV_WR_BIND_MW;
  if (qp_type === IBV_QPT_XRC_SEND && leaves) out.remoteSrqn = wr.qp_type?.xrc.remote_srqn ?? 0;
  const { rdma, atomic, ud } = wr.wr ?? {};
  if (rdma && row.remote)
    out.remote = { addr: word64('wr.rdma.remote_addr', rdma.remote_addr), rkey: rdma.rkey };
  if (atomic && row.operands > 0) {
    out.remote = { addr: word64('wr.atomic.remote_addr', atomic.remote_addr), rkey: atomic.rkey };
    out.compareAdd = word64('wr.atomic.compare_add', atomic.compare_add);
    if (row.operands > 1) out.swap = word64('wr.atomic.swap', atomic.swap);
  }
  if (ud)
    out.ud = { ah: verbsOf('ah', ud.ah, 'wr.ud.ah'), remoteQpn: ud.remote_qpn, remoteQkey: ud.remote_qkey };
  return out as SendWr;
}

function recvWr(pd: ibv_pd, wr: ibv_recv_wr): RecvWr {
  return { wrId: wr.wr_id ?? 0, sgList: elements(wr).map((sge) => element(pd, sge)) };
}

/** The first `num_sge` of the list. */
const elements = ({ sg_list = [], num_sge }: ibv_recv_wr): readonly ibv_sge[] =>
  structs('sg_list', sg_list, 'num_sge', num_sge);

/** By address and key: whether they go together shows when the request is carried out, as in C. */
export function element(pd: ibv_pd, { addr, length, lkey = 0 }: ibv_sge): SgElement {
  const mr = pd.regions.get(lkey);
  if (mr) return { addr: addressOf(mr, addr), length, lkey };
  return { addr: isAddress(addr) ? word64('addr', addr) : 0n, length, lkey };
}

const isAddress = (addr: ibv_sge['addr']): addr is bigint | number =>
  typeof addr === 'bigint' || typeof addr === 'number';

/** Inline data needs no region where the memory is given, and its key counts for nothing then. */
export function inlineBytes(pd: ibv_pd, { addr, length, lkey = 0 }: ibv_sge): Uint8Array {
  if (!isAddress(addr)) {
    const bytes = bytesOf(addr);
    if (integer('length', length) < 0 || length > bytes.length) {
      throw invalid('sg_list', `${length} bytes of inline data`, 'no more bytes than the memory has');
    }
    return bytes.subarray(0, length);
  }
  const mr = pd.regions.get(lkey);
  if (!mr)
    throw invalid('lkey', 'no region of the protection domain', 'the region of the address, or memory');
  return verbsOf('mr', mr).bytes(Number(word64('addr', addr) - mr.iova), length);
}
