/**
 * Work requests that never leave: BIND_MW and LOCAL_INV, and the invalidation that a peer asks for with
 * SEND_WITH_INV (IBTA vol 1 §10.6.7, §11.4.1.1).
 */
import { TWO_32 } from '@node-roce/wire';
import { Access, WcStatus, WrOpcode } from './constants.ts';
import type { Context } from './context.ts';
import { SendWqe } from './entry-words.ts';
import type { Owner } from './qp/owner.ts';
import type { MemoryWindow } from './region.ts';
import type { WrOpcodeRow } from './wr-opcodes.ts';

const WINDOW_ACCESS = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.ZERO_BASED;

/** Executes the entry at word `w` of a send queue; the status that it completes with. */
export function executeLocal(
  context: Context,
  qp: Owner,
  { opcode }: WrOpcodeRow,
  words: Uint32Array,
  w: number,
): number {
  if (opcode === WrOpcode.BIND_MW) return bindWindow(context, qp, words, w);
  const window = invalidatable(context, qp, words[w + SendWqe.IMMEDIATE]);
  if (!window) return WcStatus.MW_BIND_ERR; // A memory management operation error, as a bind's (§11.6.2).
  context.memory.unbind(window);
  return WcStatus.SUCCESS;
}

/**
 * The window whose key may be invalidated by a work request or a peer: of type 2, bound to this queue
 * pair (IBTA vol 1 §10.6.7.2.6). Regions of ibv_reg_mr(3) can't be invalidated.
 */
export function invalidatable(context: Context, qp: Owner, rkey: number): MemoryWindow | undefined {
  const key = context.memory.byRkey(rkey);
  return key?.window?.type === 2 && key.qpn === qp.qpn ? key.window : undefined;
}

function bindWindow(context: Context, qp: Owner, words: Uint32Array, w: number): number {
  const { memory } = context;
  const window = memory.window(words[w + SendWqe.BIND_WINDOW]);
  const key = words[w + SendWqe.RKEY];
  const access = words[w + SendWqe.BIND_ACCESS];
  const length = words[w + SendWqe.BIND_LENGTH_HIGH] * TWO_32 + words[w + SendWqe.BIND_LENGTH_LOW];
  if (!window || window.pd !== qp.pd) return WcStatus.MW_BIND_ERR;
  // The index is the device's to give; the low 8 bits have to change, so that an old key stays shut.
  if (key >>> 8 !== window.key >>> 8 || key === window.key) return WcStatus.MW_BIND_ERR;
  if (window.type === 1) {
    if (length === 0) {
      memory.unbind(window);
      window.rekey(key);
      return WcStatus.SUCCESS;
    }
    if ((access & Access.ZERO_BASED) !== 0) return WcStatus.MW_BIND_ERR;
  } else if (window.bound || length === 0) {
    return WcStatus.MW_BIND_ERR; // It has to be invalidated first.
  }
  if ((access & ~WINDOW_ACCESS) !== 0) return WcStatus.MW_BIND_ERR;
  const mr = memory.byLkey(words[w + SendWqe.BIND_LKEY] | 0);
  if (!mr || mr.pd !== qp.pd || (mr.access & Access.MW_BIND) === 0) return WcStatus.MW_BIND_ERR;
  if (window.type === 1 && (mr.access & Access.ZERO_BASED) !== 0) return WcStatus.MW_BIND_ERR;
  const writes = (access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)) !== 0;
  if (writes && (mr.access & Access.LOCAL_WRITE) === 0) return WcStatus.MW_BIND_ERR;
  const high = words[w + SendWqe.REMOTE_ADDRESS_HIGH];
  const low = words[w + SendWqe.REMOTE_ADDRESS_LOW];
  const offset = mr.locate(high, low, length);
  if (offset < 0) return WcStatus.MW_BIND_ERR;
  const start = (access & Access.ZERO_BASED) !== 0 ? 0n : (BigInt(high) << 32n) | BigInt(low);
  memory.bind(window, mr, key, { start, offset, length, access, qpn: qp.qpn });
  return WcStatus.SUCCESS;
}
