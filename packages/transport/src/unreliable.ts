/** Sends of UC and UD are done when the link has taken their packets (IBTA vol 1 §9.8.2, §9.8.3). */
import { checkDrained } from './completer.ts';
import { QpStateCode, WcStatus } from './constants.ts';
import type { Core } from './core.ts';
import type { QueuePair } from './qp.ts';
import { failHead } from './recovery.ts';

/** The link has taken what was in its batch: the entries whose packets those were are done. */
export function confirmSent(core: Core, qp: QueuePair): void {
  qp.unconfirmed = false;
  if (qp.state !== QpStateCode.RTS && qp.state !== QpStateCode.SQD) return;
  while (qp.sqHead !== qp.sqCursor) {
    if (qp.failedStatus !== 0 && qp.sqHead === qp.failedIndex) break;
    core.completeSend(qp, WcStatus.SUCCESS);
  }
  qp.unackedPsn = qp.cursorPsn;
  if (qp.failedStatus !== 0 && qp.sqHead === qp.failedIndex) failHead(core, qp, qp.failedStatus);
  else {
    checkDrained(core, qp);
    // A fenced LOCAL_INV may have waited for this.
    if (qp.sqHead !== qp.sq.producer) core.schedule(qp);
  }
}
