/** Whether a send entry is right: looked at when it starts, in the order of the completion statuses' table (IBTA vol 1 §11.6.2). */
import { Access, WcStatus } from '../constants.ts';
import type { Context } from '../context.ts';
import { SendWqe } from '../entry-words.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { checkList } from '../sge.ts';
import { Wire, type WrOpcodeRow } from '../wr-opcodes.ts';

/**
 * Operation, length and the flag of inline data are the caller's, who goes on with the values that were checked: the program may write others
 * meanwhile. Elements are checked again when they are used.
 *
 * @returns `WcStatus`: why the entry can't be executed
 */
export function checkEntry(
  context: Context,
  owner: Owner,
  queue: SendQueue,
  index: number,
  row: WrOpcodeRow | undefined,
  length: number,
  isInline: boolean,
): number {
  const { words } = queue;
  const w = queue.wordOf(index);
  if (row === undefined || (row.services & owner.service) === 0) return WcStatus.LOC_QP_OP_ERR;
  if (row.wire === Wire.LOCAL) return WcStatus.SUCCESS;
  const most = owner.datagram ? owner.attributes.pathMtu : context.limits.maxMessageSize;
  if (length > most) return WcStatus.LOC_LEN_ERR;
  if (owner.datagram) {
    const ah = context.addresses.ah(words[w + SendWqe.ADDRESS_HANDLE]);
    if (ah?.pd !== owner.pd) return WcStatus.LOC_QP_OP_ERR;
  }
  if (row.readOrAtomic && owner.attributes.maxRdAtomic === 0) return WcStatus.LOC_QP_OP_ERR;
  if (isInline && (!row.inline || length > owner.cap.maxInlineData)) return WcStatus.LOC_QP_OP_ERR;
  if (row.length >= 0 && length !== row.length) return WcStatus.LOC_LEN_ERR;
  if (isInline) return WcStatus.SUCCESS;
  const count = words[w + SendWqe.SGE_COUNT];
  if (count > owner.cap.maxSendSge) return WcStatus.LOC_QP_OP_ERR;
  const access = row.receivesData ? Access.LOCAL_WRITE : 0;
  const total = checkList(context, owner.pd, queue, w + SendWqe.SGE, count, access);
  if (total < 0) return WcStatus.LOC_PROT_ERR;
  return total === length ? WcStatus.SUCCESS : WcStatus.LOC_LEN_ERR;
}
