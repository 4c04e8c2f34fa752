/** How a NAK that ends the connection shows at the responder's side (IBTA vol 1 §9.9.3, table 61). */
import { NakCode } from '@node-roce/wire';
import type { Context } from '../context.ts';
import type { Owner } from '../qp/owner.ts';

/**
 * The queue pair goes to ERR; a count and an event name the reason. An XRCETH that is not valid counts as a violation of access (annex A14;
 * qedr and hns report it so).
 */
export function endConnection(context: Context, owner: Owner, code: number, isXrceth = false): void {
  const { qpn, counters } = owner;
  owner.toError();
  if (code === NakCode.REMOTE_ACCESS_ERROR) {
    counters.sentAccessErr++;
    context.event({ type: 'QP_ACCESS_ERR', qpn });
  } else if (code === NakCode.INVALID_REQUEST) {
    counters.sentInvalidRequest++;
    context.event({ type: isXrceth ? 'QP_ACCESS_ERR' : 'QP_REQ_ERR', qpn });
  } else counters.sentOperationalErr++;
}
