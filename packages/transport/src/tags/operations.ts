/** Operations on the list of a tag matching SRQ (ibv_post_srq_ops(3)). */
import { WcFlags, WcOpcode, WcStatus } from '../constants.ts';
import type { Context } from '../context.ts';
import type { SrqOp } from '../control.ts';
import { Cqe, RecvWqe, SGE_WORDS, Sge } from '../entry-words.ts';
import { invalid, RoceError } from '../errors.ts';
import type { TagList } from './tag-list.ts';

const COMPLETIONS = {
  TAG_ADD: WcOpcode.TM_ADD,
  TAG_DEL: WcOpcode.TM_DEL,
  TAG_SYNC: WcOpcode.TM_SYNC,
} as const;

const LOW = 0xffff_ffffn;

/** Carries out one, and completes it. @returns the handle of a buffer that was added, else 0; throws ENOMEM without room for it */
export function executeOperation(context: Context, tags: TagList, op: SrqOp): number {
  if (op.opcode === 'TAG_ADD') {
    if (op.list.length > tags.maxSge)
      throw invalid('list', `${op.list.length} elements`, `${tags.maxSge} at most`);
    if (tags.count === tags.capacity) {
      throw new RoceError('ERR_ROCE_LIMIT', `the list is full: it has ${tags.capacity} tags`, {
        errno: 'ENOMEM',
      });
    }
  }
  if (op.handled !== undefined) tags.sync(op.handled);
  let handle = 0;
  let status: number = WcStatus.SUCCESS;
  if (op.opcode === 'TAG_ADD') {
    handle = tags.add(op.tag, op.mask, (words, w) => writeEntry(words, w, op.recvWrId, op.list));
  } else if (op.opcode === 'TAG_DEL' && !tags.delete(op.handle)) status = WcStatus.TM_ERR;
  if (op.signaled || status !== WcStatus.SUCCESS) complete(context, tags, op, status);
  return handle;
}

function writeEntry(
  words: Uint32Array,
  w: number,
  wrId: bigint,
  list: (SrqOp & { opcode: 'TAG_ADD' })['list'],
): void {
  words[w + RecvWqe.WR_ID_LOW] = Number(wrId & LOW);
  words[w + RecvWqe.WR_ID_HIGH] = Number(wrId >> 32n);
  words[w + RecvWqe.SGE_COUNT] = list.length;
  for (const [i, { addr, length, lkey }] of list.entries()) {
    const s = w + RecvWqe.SGE + i * SGE_WORDS;
    words[s + Sge.ADDRESS_HIGH] = Number(addr >> 32n);
    words[s + Sge.ADDRESS_LOW] = Number(addr & LOW);
    words[s + Sge.LENGTH] = length;
    words[s + Sge.LKEY] = lkey;
  }
}

function complete(context: Context, tags: TagList, { wrId, opcode }: SrqOp, status: number): void {
  const { cq } = tags;
  const w = context.claim(cq, 0);
  if (w < 0) return;
  const { words } = cq;
  words[w + Cqe.WR_ID_LOW] = Number(wrId & LOW);
  words[w + Cqe.WR_ID_HIGH] = Number(wrId >> 32n);
  words[w + Cqe.STATUS] = status;
  words[w + Cqe.OPCODE] = COMPLETIONS[opcode];
  if (!tags.inSync) words[w + Cqe.FLAGS] = WcFlags.TM_SYNC_REQ;
  cq.commit(status !== WcStatus.SUCCESS);
}
