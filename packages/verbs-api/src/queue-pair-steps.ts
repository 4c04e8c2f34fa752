/** The steps of a queue pair from RESET to RTS without a peer: attributes for `modify`. */
import { Access, invalid, type QpAttr, type QpState, type QpType } from '@node-roce/transport';
import { GSI_QKEY } from '@node-roce/wire';
import { type AccessInit, accessBits } from './memory-region.ts';

/** Q_Key of the tools that people test with (perftest, ibv_ud_pingpong). */
const DEFAULT_QKEY = 0x1111_1111;
const REMOTE_ACCESS = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;

const isDatagram = (type: QpType): boolean => type === 'UD' || type === 'GSI';

/** RESET to INIT. */
export function initStep(
  type: QpType,
  { access, qkey }: { access?: number | AccessInit; qkey?: number },
): QpAttr {
  if (type === 'RAW_PACKET') return { qpState: 'INIT', portNum: 1 };
  const step = { qpState: 'INIT', pkeyIndex: 0, portNum: 1 } as const;
  if (isDatagram(type)) return { ...step, qkey: qkey ?? (type === 'GSI' ? GSI_QKEY : DEFAULT_QKEY) };
  return { ...step, qpAccessFlags: access === undefined ? REMOTE_ACCESS : accessBits(access) };
}

/** RESET or INIT to RTS. EINVAL for a type that has a peer. */
export function activationSteps(
  type: QpType,
  state: QpState,
  { qkey }: { qkey?: number },
  sqPsn: number,
): QpAttr[] {
  const isRaw = type === 'RAW_PACKET';
  if (isRaw && qkey !== undefined) throw invalid('qkey', 'frames bring no Q_Key', 'none');
  if (!(isDatagram(type) || isRaw)) throw invalid('type', `${type} queue pairs have a peer`, 'connect');
  const first: QpAttr[] =
    state === 'RESET' ? [initStep(type, { qkey })] : qkey === undefined ? [] : [{ qkey }];
  return [...first, { qpState: 'RTR' }, { qpState: 'RTS', ...(isRaw ? {} : { sqPsn }) }];
}
