/** Protection domains, memory regions, memory windows. */
import { invalid } from '@node-roce/transport';
import { incRkey, type MwRange } from '@node-roce/verbs-api';
import { integer, word64 } from './arguments.ts';
import {
  IBV_REREG_MR_CHANGE_ACCESS,
  IBV_REREG_MR_CHANGE_PD,
  IBV_REREG_MR_CHANGE_TRANSLATION,
  IBV_REREG_MR_ERR_INPUT,
  IBV_REREG_MR_FLAGS_SUPPORTED,
  IBV_SEND_FENCE,
  IBV_SEND_SIGNALED,
} from './constants.ts';
import { checkUnused, ibv_parent_domain } from './domains.ts';
import { pointer, status, statusNow } from './errno.ts';
import {
  checkKind,
  given,
  type ibv_context,
  ibv_mr,
  ibv_mw,
  ibv_pd,
  type ibv_qp,
  verbsOf,
} from './objects.ts';
import type { ibv_mw_bind, ibv_mw_bind_info, Memory } from './structs.ts';

/** ibv_alloc_pd(3). */
export function ibv_alloc_pd(context: ibv_context): Promise<ibv_pd | null> {
  return pointer(async () => new ibv_pd(context, await verbsOf('context', context).allocPd()));
}

/** ibv_dealloc_pd(3), also of a parent domain: EBUSY while anything that was made with it is there. */
export function ibv_dealloc_pd(pd: ibv_pd): Promise<number> {
  return status(() => {
    if (pd instanceof ibv_parent_domain) return pd.dealloc();
    const verbs = verbsOf('pd', pd);
    checkUnused(pd);
    return verbs.dealloc();
  });
}

/** Access flags that a device may ignore (IBV_ACCESS_OPTIONAL_RANGE): bits 20 to 29. */
export const IGNORED_ACCESS = 0x3ff0_0000;

/**
 * ibv_reg_mr(3).
 *
 * @param addr a buffer or a view: what C has a pointer to. With the engine in a worker, over a SharedArrayBuffer
 * @param length bytes from its start, all of it at most
 * @param access IBV_ACCESS_ flags; those of the optional range count for nothing
 */
export function ibv_reg_mr(pd: ibv_pd, addr: Memory, length: number, access: number): Promise<ibv_mr | null> {
  return register(pd, addr, length, access);
}

/** ibv_reg_mr_iova(3): as `ibv_reg_mr`; work requests and peers name the first byte `iova`. */
export function ibv_reg_mr_iova(
  pd: ibv_pd,
  addr: Memory,
  length: number,
  iova: bigint,
  access: number,
): Promise<ibv_mr | null> {
  return register(pd, addr, length, access, iova);
}

function register(
  pd: ibv_pd,
  addr: Memory,
  length: number,
  access: number,
  iova?: bigint,
): Promise<ibv_mr | null> {
  return pointer(async () => {
    const options = { access: integer('access', access) & ~IGNORED_ACCESS, iova };
    return new ibv_mr(pd, await verbsOf('pd', pd).registerMr(firstBytes(addr, length), options));
  });
}

/**
 * ibv_rereg_mr(3). 0, or IBV_REREG_MR_ERR_INPUT with errno: then the region is what it was. A new translation
 * has new keys.
 */
export function ibv_rereg_mr(
  mr: ibv_mr,
  flags: number,
  pd: ibv_pd | null,
  addr: Memory | null,
  length: number,
  access: number,
): Promise<number> {
  return status(async () => {
    checkKind('mr', mr, ibv_mr);
    const oldKey = mr.lkey;
    const changes = integer('flags', flags);
    if (changes === 0 || (changes & ~IBV_REREG_MR_FLAGS_SUPPORTED) !== 0)
      throw invalid('flags', `0x${changes.toString(16)}`, 'IBV_REREG_MR_CHANGE_… bits');
    const newPd = (flags & IBV_REREG_MR_CHANGE_PD) !== 0 ? pd : undefined;
    const memory = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) !== 0 ? addr : undefined;
    if (newPd === null) throw invalid('pd', 'none', 'a protection domain');
    if (memory === null) throw invalid('addr', 'none', 'memory');
    await verbsOf('mr', mr).reregister({
      ...(newPd ? { pd: verbsOf('pd', newPd) } : {}),
      ...(memory ? { memory: firstBytes(memory, length) } : {}),
      ...((flags & IBV_REREG_MR_CHANGE_ACCESS) !== 0 ? { access: access & ~IGNORED_ACCESS } : {}),
    });
    mr.pd.regions.delete(oldKey);
    mr.pd.gone(mr);
    if (newPd) mr.pd = newPd;
    mr.pd.made(mr);
    mr.pd.regions.set(mr.lkey, mr);
  }, IBV_REREG_MR_ERR_INPUT);
}

/**
 * ibv_alloc_null_mr(3): a region whose bytes are zeros and take what is written without keeping it, for scatter/gather lists with
 * its lkey and any address. EINVAL for `ibv_rereg_mr` and windows.
 */
export function ibv_alloc_null_mr(pd: ibv_pd): Promise<ibv_mr | null> {
  return pointer(async () => new ibv_mr(pd, await verbsOf('pd', pd).allocNullMr()));
}

/** ibv_dereg_mr(3): EBUSY while memory windows are bound to it. */
export function ibv_dereg_mr(mr: ibv_mr): Promise<number> {
  return status(async () => {
    checkKind('mr', mr, ibv_mr);
    await (mr.nullRegion ?? mr.verbs).deregister();
    mr.pd.regions.delete(mr.lkey);
    mr.pd.gone(mr);
  });
}

/** ibv_alloc_mw(3): IBV_MW_TYPE_1 or IBV_MW_TYPE_2 (2B: a window belongs to the queue pair that bound it). */
export function ibv_alloc_mw(pd: ibv_pd, type: number): Promise<ibv_mw | null> {
  return pointer(async () => new ibv_mw(pd, await verbsOf('pd', pd).allocMw(type as 1 | 2)));
}

/** ibv_dealloc_mw(3). The range that the window was bound to is closed to peers. */
export function ibv_dealloc_mw(mw: ibv_mw): Promise<number> {
  return status(async () => {
    await verbsOf('mw', mw).dealloc();
    mw.pd.gone(mw);
  });
}

/** ibv_bind_mw(3), type 1: posts the bind; `mw.rkey` is the new key, good once the bind is complete. */
export function ibv_bind_mw(qp: ibv_qp, mw: ibv_mw, mw_bind: ibv_mw_bind): number {
  return statusNow(() => {
    const { wr_id, send_flags = 0, bind_info } = given('mw_bind', mw_bind);
    const range = Number(given('bind_info', bind_info).length) === 0 ? undefined : rangeOf(bind_info);
    verbsOf('qp', qp).bindMw(verbsOf('mw', mw), range, {
      wrId: wr_id,
      signaled: (send_flags & IBV_SEND_SIGNALED) !== 0,
      fence: (send_flags & IBV_SEND_FENCE) !== 0,
    });
  });
}

/** ibv_inc_rkey(3): the same key with its low 8 bits counted on, for the next bind of a type 2 window. */
export function ibv_inc_rkey(rkey: number): number {
  return incRkey(rkey);
}

/** The range and rights of a window, as verbs-api takes them. */
export function rangeOf({ mr, addr, length, mw_access_flags = 0 }: ibv_mw_bind_info): MwRange {
  const region = verbsOf('mr', mr, 'bind_info.mr');
  const offset = Number(addressOf(mr, addr) - mr.iova);
  return { mr: region, offset, length: Number(length), access: mw_access_flags };
}

/** The bytes of memory that C would have a pointer to. */
export function bytesOf(memory: Memory): Uint8Array {
  return ArrayBuffer.isView(memory)
    ? new Uint8Array(memory.buffer, memory.byteOffset, memory.byteLength)
    : new Uint8Array(memory);
}

/** An address in the terms of a region. Memory that is of another buffer has none: one past the region's end. */
export function addressOf(mr: ibv_mr, addr: bigint | number | Memory): bigint {
  if (typeof addr === 'bigint' || typeof addr === 'number') return word64('addr', addr);
  const bytes = bytesOf(addr);
  const { buffer, bufferOffset, iova, length } = verbsOf('mr', mr);
  if (bytes.buffer !== buffer) return BigInt.asUintN(64, iova + BigInt(length) + 1n);
  return BigInt.asUintN(64, iova + BigInt(bytes.byteOffset - bufferOffset));
}

function firstBytes(memory: Memory, length: number): Memory {
  // For a value that is not memory, verbs-api throws the error.
  if (!ArrayBuffer.isView(memory) && !(memory instanceof ArrayBuffer || memory instanceof SharedArrayBuffer))
    return memory;
  const bytes = bytesOf(memory);
  if (!Number.isSafeInteger(length) || length < 0 || length > bytes.length) {
    throw invalid('length', `${length}`, `0 … ${bytes.length}, the memory's bytes`);
  }
  return bytes.subarray(0, length);
}
