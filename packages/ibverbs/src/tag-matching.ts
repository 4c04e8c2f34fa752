/** Tag matching: operations on the list of an SRQ of IBV_SRQT_TM (ibv_post_srq_ops(3)), and their limit. */
import { RoceError } from '@node-roce/transport';
import type { TagOp } from '@node-roce/verbs-api';
import { integer, structs, word64 } from './arguments.ts';
import {
  IBV_OPS_SIGNALED,
  IBV_OPS_TM_SYNC,
  IBV_WR_TAG_ADD,
  IBV_WR_TAG_DEL,
  IBV_WR_TAG_SYNC,
} from './constants.ts';
import { failed } from './errno.ts';
import { given, type ibv_srq, verbsOf } from './objects.ts';
import type { ibv_ops_wr } from './structs.ts';
import { element } from './work-request.ts';

/** Operations under way, as `tm_caps` has them: each is done when it is posted, so that there is no limit. */
export const MAX_TAG_OPS = 65_535;

/**
 * ibv_post_srq_ops(3): the chain of `wr`, in order; resolves when it is done. 0, or an errno (EINVAL; ENOMEM: the list is
 * full; EOPNOTSUPP), and then `bad_wr[0]` is the first that was not carried out.
 */
export async function ibv_post_srq_ops(
  srq: ibv_srq,
  wr: ibv_ops_wr,
  bad_wr?: (ibv_ops_wr | null)[] | null,
): Promise<number> {
  let one: ibv_ops_wr | null | undefined = wr;
  try {
    given('wr', wr);
    for (; one; one = one.next) {
      const handle = await verbsOf('srq', srq).postTagOp(tagOp(srq, one));
      if (one.opcode === IBV_WR_TAG_ADD) one.tm!.handle = handle;
    }
    return 0;
  } catch (error) {
    const code = failed(error);
    if (Array.isArray(bad_wr)) bad_wr[0] = one ?? null;
    return code;
  }
}

type Addition = NonNullable<NonNullable<ibv_ops_wr['tm']>['add']>;

function tagOp({ pd }: ibv_srq, { wr_id = 0, opcode, flags: given_flags, tm }: ibv_ops_wr): TagOp {
  const flags = integer('flags', given_flags);
  const common = {
    wrId: wr_id,
    signaled: (flags & IBV_OPS_SIGNALED) !== 0,
    ...((flags & IBV_OPS_TM_SYNC) !== 0 ? { handled: tm?.unexpected_cnt ?? 0 } : {}),
  };
  if (opcode === IBV_WR_TAG_SYNC) return { ...common, opcode: 'TAG_SYNC' };
  if (opcode === IBV_WR_TAG_DEL) return { ...common, opcode: 'TAG_DEL', handle: tm?.handle ?? 0 };
  if (opcode !== IBV_WR_TAG_ADD) {
    throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `opcode: ${opcode}`, {
      errno: 'EOPNOTSUPP',
      attribute: 'opcode',
      expected: 'IBV_WR_TAG_ADD, IBV_WR_TAG_DEL, IBV_WR_TAG_SYNC',
    });
  }
  const { recv_wr_id = 0, sg_list = [], num_sge, tag, mask } = given('tm.add', tm?.add as Addition);
  return {
    ...common,
    opcode: 'TAG_ADD',
    recvWrId: recv_wr_id,
    tag: word64('tm.add.tag', tag),
    mask: word64('tm.add.mask', mask),
    sgList: structs('sg_list', sg_list, 'num_sge', num_sge).map((sge) => element(pd, sge)),
  };
}
