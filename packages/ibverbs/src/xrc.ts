/** XRC: domains, their shared receive queues, target queue pairs. The device has to be opened with `experimental: ['xrc']`. */
import { constants, fstatSync } from 'node:fs';
import { invalid, RoceError } from '@node-roce/transport';
import { integer } from './arguments.ts';
import * as c from './constants.ts';
import { pointer, status } from './errno.ts';
import { given, type ibv_context, ibv_qp, ibv_srq, ibv_xrcd, verbsOf } from './objects.ts';
import type { ibv_qp_open_attr, ibv_srq_init_attr_ex, ibv_xrcd_init_attr } from './structs.ts';
import { MAX_TAG_OPS } from './tag-matching.ts';

/**
 * ibv_open_xrcd(3): with a file, the domain that all contexts of the device share which open it for that inode; with `fd` −1
 * one of its own. As in the kernel: EAGAIN where there is none and `oflags` lack O_CREAT, EINVAL where there is one and they have
 * O_EXCL. Processes share none: a device is one process's.
 */
export function ibv_open_xrcd(
  context: ibv_context,
  xrcd_init_attr: ibv_xrcd_init_attr,
): Promise<ibv_xrcd | null> {
  return pointer(async () => {
    const { comp_mask, fd, oflags } = given('xrcd_init_attr', xrcd_init_attr);
    const needed = c.IBV_XRCD_INIT_ATTR_FD | c.IBV_XRCD_INIT_ATTR_OFLAGS;
    if (comp_mask !== needed)
      throw invalid(
        'comp_mask',
        `0x${comp_mask?.toString(16)}`,
        'IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS',
      );
    if ((oflags & ~(constants.O_CREAT | constants.O_EXCL)) !== 0)
      throw invalid('oflags', `0x${oflags.toString(16)}`, 'O_CREAT, O_EXCL');
    const verbs = await verbsOf('context', context).openXrcDomain({
      ...(fd === -1 ? {} : { name: inodeOf(fd) }),
      create: (oflags & constants.O_CREAT) !== 0,
      exclusive: (oflags & constants.O_EXCL) !== 0,
    });
    return new ibv_xrcd(context, verbs);
  });
}

/** A name for the file behind a descriptor; EBADF without one. */
function inodeOf(fd: number): string {
  try {
    const { dev, ino } = fstatSync(fd, { bigint: true });
    return `inode ${dev}:${ino}`;
  } catch (cause) {
    throw new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `fd: ${fd} is no open file`, {
      errno: 'EBADF',
      attribute: 'fd',
      expected: 'a descriptor, or −1',
      cause,
    });
  }
}

/** ibv_close_xrcd(3): EBUSY while SRQs and queue pairs that were made with it are there. */
export function ibv_close_xrcd(xrcd: ibv_xrcd): Promise<number> {
  return status(() => verbsOf('xrcd', xrcd).close());
}

/**
 * ibv_create_srq_ex(3): of type IBV_SRQT_BASIC, IBV_SRQT_XRC with `xrcd` and `cq`, where its receives complete, or IBV_SRQT_TM with
 * `cq` and `tm_cap`. `attr` is set to what was created.
 */
export function ibv_create_srq_ex(
  context: ibv_context,
  srq_init_attr_ex: ibv_srq_init_attr_ex,
): Promise<ibv_srq | null> {
  return pointer(async () => {
    verbsOf('context', context);
    const { comp_mask, attr, srq_context, ...init } = given('srq_init_attr_ex', srq_init_attr_ex);
    const has = (bit: number) => (comp_mask & bit) !== 0;
    const type = has(c.IBV_SRQ_INIT_ATTR_TYPE) ? init.srq_type : c.IBV_SRQT_BASIC;
    if (!has(c.IBV_SRQ_INIT_ATTR_PD) || !init.pd)
      throw invalid('comp_mask', 'no protection domain', 'IBV_SRQ_INIT_ATTR_PD, and pd');
    if (type !== c.IBV_SRQT_BASIC && type !== c.IBV_SRQT_XRC && type !== c.IBV_SRQT_TM)
      throw invalid('srq_type', `${type}`, 'IBV_SRQT_BASIC, IBV_SRQT_XRC, IBV_SRQT_TM');
    const isXrc = type === c.IBV_SRQT_XRC;
    const isTm = type === c.IBV_SRQT_TM;
    if (isTm && !(has(c.IBV_SRQ_INIT_ATTR_CQ) && has(c.IBV_SRQ_INIT_ATTR_TM)))
      throw invalid('comp_mask', 'IBV_SRQT_TM needs both', 'IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_TM');
    if (isXrc && !(has(c.IBV_SRQ_INIT_ATTR_XRCD) && has(c.IBV_SRQ_INIT_ATTR_CQ)))
      throw invalid('comp_mask', 'IBV_SRQT_XRC needs both', 'IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQ_INIT_ATTR_CQ');
    const { max_wr = 0, max_sge = 0, srq_limit = 0 } = given('attr', attr);
    const srq = await verbsOf('pd', init.pd).createSrq({
      maxWr: max_wr,
      maxSge: max_sge,
      limit: srq_limit,
      context: srq_context,
      ...(isXrc ? { xrc: { domain: verbsOf('xrcd', init.xrcd!), cq: verbsOf('cq', init.cq!) } } : {}),
      ...(isTm ? { tags: tagsOf(init) } : {}),
    });
    attr.max_wr = srq.maxWr;
    attr.max_sge = srq.maxSge;
    return new ibv_srq(init.pd, srq);
  });
}

function tagsOf({ tm_cap, cq }: Pick<ibv_srq_init_attr_ex, 'tm_cap' | 'cq'>) {
  const { max_num_tags, max_ops = 0 } = given('tm_cap', tm_cap!);
  if (integer('tm_cap.max_ops', max_ops) < 0 || max_ops > MAX_TAG_OPS)
    throw invalid('tm_cap.max_ops', `${max_ops} can't be had`, `0 … ${MAX_TAG_OPS}`);
  return { max: max_num_tags, cq: verbsOf('cq', cq!) };
}

/** ibv_open_qp(3): one more opening of a target queue pair of the domain, by its number. EINVAL for another. */
export function ibv_open_qp(context: ibv_context, qp_open_attr: ibv_qp_open_attr): Promise<ibv_qp | null> {
  return pointer(async () => {
    verbsOf('context', context);
    const { comp_mask, qp_num, xrcd, qp_context, qp_type } = given('qp_open_attr', qp_open_attr);
    const needed = c.IBV_QP_OPEN_ATTR_NUM | c.IBV_QP_OPEN_ATTR_XRCD;
    const known = needed | c.IBV_QP_OPEN_ATTR_CONTEXT | c.IBV_QP_OPEN_ATTR_TYPE;
    if ((comp_mask & needed) !== needed || (comp_mask & ~known) !== 0)
      throw invalid(
        'comp_mask',
        `0x${comp_mask?.toString(16)}`,
        'IBV_QP_OPEN_ATTR_NUM, _XRCD, _CONTEXT, _TYPE',
      );
    if ((comp_mask & c.IBV_QP_OPEN_ATTR_TYPE) !== 0 && qp_type !== c.IBV_QPT_XRC_RECV)
      throw invalid('qp_type', `${qp_type}`, 'IBV_QPT_XRC_RECV');
    return new ibv_qp(
      context,
      null,
      null,
      null,
      await verbsOf('xrcd', xrcd).openTarget(qp_num, { context: qp_context }),
    );
  });
}
