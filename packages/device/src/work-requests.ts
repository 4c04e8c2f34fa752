/** Work requests as a program's library sends them. */
import {
  IBV_SEND_INLINE,
  IBV_WR_ATOMIC_CMP_AND_SWP,
  IBV_WR_ATOMIC_FETCH_AND_ADD,
  IBV_WR_BIND_MW,
  IBV_WR_RDMA_READ,
  IBV_WR_RDMA_WRITE,
  IBV_WR_RDMA_WRITE_WITH_IMM,
  type ibv_ah,
  type ibv_mr,
  type ibv_mw,
  type ibv_recv_wr,
  type ibv_send_wr,
  type ibv_sge,
} from '@node-roce/ibverbs';
import { Malformed, type Reader } from './protocol.ts';

/** Work requests in one message at most, and elements of one. */
const MAX_REQUESTS = 16_384;
const MAX_ELEMENTS = 256;

/** Finds what a handle stands for. */
export interface Handles {
  ah(handle: number): ibv_ah;
  mr(handle: number): ibv_mr;
  mw(handle: number): ibv_mw;
}

function bounded(count: number, most: number): number {
  if (count > most) throw new Malformed(`a count of ${count}`);
  return count;
}

function elements(from: Reader): ibv_sge[] {
  return Array.from({ length: bounded(from.u32(), MAX_ELEMENTS) }, () => ({
    addr: from.u64(),
    length: from.u32(),
    lkey: from.u32(),
  }));
}

const RDMA = [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ] as readonly number[];
const ATOMIC = [IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD] as readonly number[];

function sendRequest(from: Reader, handles: Handles, isDatagram: boolean): ibv_send_wr {
  const wr_id = from.u64();
  const [opcode, send_flags, immediate] = [from.u32(), from.u32(), from.u32()];
  const remote_addr = from.u64();
  const rkey = from.u32();
  const [compare_add, swap] = [from.u64(), from.u64()];
  const wr: ibv_send_wr = { wr_id, opcode, send_flags, imm_data: immediate, invalidate_rkey: immediate };
  const [ah, remote_qpn, remote_qkey] = [from.u32(), from.u32(), from.u32()];
  if (opcode === IBV_WR_BIND_MW) {
    const [mw, key, mr] = [from.u32(), from.u32(), from.u32()];
    const [addr, length] = [from.u64(), from.u64()];
    const bind_info = { mr: handles.mr(mr), addr, length, mw_access_flags: from.u32() };
    wr.bind_mw = { mw: handles.mw(mw), rkey: key, bind_info };
  } else if (isDatagram) wr.wr = { ud: { ah: handles.ah(ah), remote_qpn, remote_qkey } };
  else if (ATOMIC.includes(opcode)) wr.wr = { atomic: { remote_addr, rkey, compare_add, swap } };
  else if (RDMA.includes(opcode)) wr.wr = { rdma: { remote_addr, rkey } };
  if ((send_flags & IBV_SEND_INLINE) === 0) wr.sg_list = elements(from);
  else {
    const addr = from.bytes(from.u32());
    wr.sg_list = addr.length === 0 ? [] : [{ addr, length: addr.length }];
  }
  return wr;
}

/** Links the requests, and returns them in their order. */
function chain<T extends { next?: T | null }>(from: Reader, one: () => T): T[] {
  const list = Array.from({ length: bounded(from.u32(), MAX_REQUESTS) }, one);
  list.forEach((wr, i) => {
    wr.next = list[i + 1] ?? null;
  });
  from.end();
  return list;
}

/** Reads a chain of send requests. */
export function sendRequests(from: Reader, handles: Handles, isDatagram: boolean): ibv_send_wr[] {
  return chain(from, () => sendRequest(from, handles, isDatagram));
}

/** Reads a chain of receive requests. */
export function recvRequests(from: Reader): ibv_recv_wr[] {
  return chain<ibv_recv_wr>(from, () => ({ wr_id: from.u64(), sg_list: elements(from) }));
}
