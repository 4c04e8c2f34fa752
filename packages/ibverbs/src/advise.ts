/** Advice about memory: ibv_advise_mr(3). */
import { invalid, RoceError } from '@node-roce/transport';
import { integer, structs } from './arguments.ts';
import * as c from './constants.ts';
import { status } from './errno.ts';
import { type ibv_pd, verbsOf } from './objects.ts';
import type { ibv_sge } from './structs.ts';
import { element } from './work-request.ts';

const PAGE = 4096;
const NAMES =
  'IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT';

/**
 * ibv_advise_mr(3): brings the pages of ranges into memory before requests are posted that would have to wait for them: for the
 * device to read, or with IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE to write. Memory is not pinned here, so any region may be named, and
 * it is done when the call returns, with IBV_ADVISE_MR_FLAG_FLUSH or without.
 *
 * EOPNOTSUPP for other advice, EINVAL for other flags, ENOENT for a key that opens no region of the protection domain, EFAULT beyond
 * the region, EPERM to write to one without IBV_ACCESS_LOCAL_WRITE.
 */
export function ibv_advise_mr(
  pd: ibv_pd,
  advice: number,
  flags: number,
  sg_list: readonly ibv_sge[],
  num_sge: number,
): Promise<number> {
  return status(() => {
    verbsOf('pd', pd);
    const writes = advice === c.IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    const looks = advice === c.IBV_ADVISE_MR_ADVICE_PREFETCH;
    if (!writes && !looks && advice !== c.IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
      throw refused('EOPNOTSUPP', 'advice', `${advice}`, NAMES);
    if ((integer('flags', flags) & ~c.IBV_ADVISE_MR_FLAG_FLUSH) !== 0)
      throw invalid('flags', `0x${flags.toString(16)}`, 'IBV_ADVISE_MR_FLAG_FLUSH');
    if (num_sge === 0) throw invalid('num_sge', '0', '1 or more');
    const list = structs('sg_list', sg_list, 'num_sge', num_sge);
    const ranges = list.map((sge, i) => adviseRange(pd, sge, i, writes));
    // Without page faults, nothing can be brought in.
    if (looks) for (const bytes of ranges) read(bytes);
    else if (writes) for (const bytes of ranges) write(bytes);
  });
}

function adviseRange(pd: ibv_pd, sge: ibv_sge, i: number, writes: boolean): Uint8Array {
  const name = `sg_list[${i}]`;
  const mr = pd.regions.get(sge.lkey ?? 0);
  if (!mr) throw refused('ENOENT', `${name}.lkey`, 'opens no region of the protection domain', 'mr.lkey');
  const { verbs } = mr;
  if (writes && (verbs.access & c.IBV_ACCESS_LOCAL_WRITE) === 0)
    throw refused('EPERM', `${name}.lkey`, 'the device may not write the region', 'IBV_ACCESS_LOCAL_WRITE');
  const { addr } = element(pd, sge) as { addr: bigint };
  const offset = addr - mr.iova;
  const length = integer(`${name}.length`, sge.length);
  if (offset < 0n || length < 0 || offset + BigInt(length) > BigInt(verbs.length))
    throw refused('EFAULT', `${name}.addr`, 'not all of the range is in the region', `${verbs.length} bytes`);
  return verbs.bytes(Number(offset), length);
}

function refused(
  errno: 'EOPNOTSUPP' | 'ENOENT' | 'EPERM' | 'EFAULT',
  attribute: string,
  what: string,
  expected: string,
): RoceError {
  const code = errno === 'EOPNOTSUPP' ? 'ERR_ROCE_NOT_SUPPORTED' : 'ERR_ROCE_INVALID_ATTRIBUTE';
  return new RoceError(code, `${attribute}: ${what}`, { errno, attribute, expected });
}

function read(bytes: Uint8Array): void {
  for (let i = 0; i < bytes.length; i += PAGE) Atomics.load(bytes, i);
  if (bytes.length > 0) Atomics.load(bytes, bytes.length - 1);
}

/** A write that changes nothing, also of what another thread writes meanwhile. */
function write(bytes: Uint8Array): void {
  for (let i = 0; i < bytes.length; i += PAGE) Atomics.or(bytes, i, 0);
  if (bytes.length > 0) Atomics.or(bytes, bytes.length - 1, 0);
}
