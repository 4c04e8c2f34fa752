/**
 * What UC and UD do of their own: a send is done when the link has taken its packets; a message that is
 * not whole is dropped without a word (IBTA vol 1 §9.8.2, §9.8.3, §9.9.3).
 */
import { bthSolicited, dethQkey, dethSrcQp, immDt, NakCode, psnAdd } from '@node-roce/wire';
import { checkDrained } from './completer.ts';
import { Access, QpStateCode, WcFlags, WcOpcode, WcStatus } from './constants.ts';
import type { Core } from './core.ts';
import { GRH_BYTES, writeGrh } from './grh.ts';
import type { InboundPacket } from './inbound.ts';
import { Inbound, type QueuePair } from './qp.ts';
import { failHead } from './recovery.ts';
import { checkAllowed, receiveSend, receiveWrite } from './responder.ts';
import { RecvWqe } from './rings.ts';
import { checkList, Scattered, scatterReceive } from './sge.ts';

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

/**
 * A UC packet. One that does not follow the one before ends the message that was coming in, and only a
 * FIRST or ONLY begins another, whatever its PSN.
 */
export function receiveUnreliable(core: Core, qp: QueuePair, packet: InboundPacket): void {
  const { info, psn } = packet;
  const follows = qp.inbound === (info.isSend ? Inbound.SEND : Inbound.WRITE) && psn === qp.expectedPsn;
  if (!(info.first ? qp.inbound === Inbound.NONE : follows)) abandonMessage(core, qp);
  if (!info.first && !follows) {
    qp.counters.droppedPackets++;
    return;
  }
  qp.expectedPsn = psnAdd(psn, 1);
  if (!checkAllowed(core, qp, packet)) return;
  if (info.isSend) receiveSend(core, qp, packet);
  else receiveWrite(core, qp, packet);
}

/**
 * The message that is coming in is dropped: its receive entry is used again for the next. An entry of an
 * SRQ can't go back there, so it completes in error (IBTA vol 1 §9.9.3.2.4).
 */
export function abandonMessage(core: Core, qp: QueuePair): void {
  if (qp.inbound !== Inbound.NONE || qp.receiving) qp.counters.droppedMessages++;
  qp.inbound = Inbound.NONE;
  qp.writeMr = undefined;
  if (qp.srq && qp.receiving) {
    core.completeReceive(qp, WcStatus.REM_INV_REQ_ERR, WcOpcode.RECV, 0, 0, 0, true);
  }
  qp.receiving = false;
}

/**
 * A fault in a UC message: the peer's own drops the message, one of our receive entry ends the queue pair.
 * Its completion says so; there is no event for what a completion can say (IBTA vol 1 §11.6.3).
 */
export function failUnreliable(core: Core, qp: QueuePair, code: number, status: number): void {
  if (code !== NakCode.REMOTE_OPERATIONAL_ERROR) {
    qp.counters.droppedPackets++;
    abandonMessage(core, qp);
    return;
  }
  core.completeReceive(qp, status, WcOpcode.RECV, 0, 0, 0, true);
  core.toError(qp);
}

const grh = new Uint8Array(GRH_BYTES);

/** A datagram: 40 bytes of GRH, then the payload, into the next receive entry (§9.8.3, §11.4.1.2). */
export function receiveDatagram(core: Core, qp: QueuePair, packet: InboundPacket): void {
  const { info, slab, at, payload } = packet;
  const deth = at + info.offsets.deth;
  if (dethQkey(slab, deth) !== qp.qkey) {
    qp.counters.qkeyViolations++;
    return;
  }
  if (payload > qp.pathMtu) {
    qp.counters.droppedPackets++;
    return;
  }
  if (!core.takeReceive(qp)) {
    qp.counters.outOfBuffer++;
    return;
  }
  const w = qp.rq.wordOf(qp.rqHead);
  const count = qp.rq.words[w + RecvWqe.SGE_COUNT];
  const room =
    count > qp.maxReceiveSge
      ? -1
      : checkList(core, qp.recvPd, qp.rq, w + RecvWqe.SGE, count, Access.LOCAL_WRITE);
  if (room < 0) {
    if (qp.srq && count > qp.maxReceiveSge) core.event({ type: 'SRQ_ERR', srq: qp.srq.handle });
    const status = count > qp.maxReceiveSge ? WcStatus.LOC_QP_OP_ERR : WcStatus.LOC_PROT_ERR;
    failUnreliable(core, qp, NakCode.REMOTE_OPERATIONAL_ERROR, status);
    return;
  }
  if (GRH_BYTES + payload > room) {
    // Too small: the datagram is dropped, the entry waits for the next (§9.9.3.2.4, class D).
    qp.counters.droppedPackets++;
    return;
  }
  writeGrh(grh, core, packet);
  qp.receivedLength = 0;
  let scattered = scatterReceive(core, qp, 0, GRH_BYTES, grh);
  qp.receivedLength = GRH_BYTES;
  if (scattered === Scattered.OK) scattered = scatterReceive(core, qp, at + info.headerLength, payload);
  if (scattered !== Scattered.OK) {
    failUnreliable(core, qp, NakCode.REMOTE_OPERATIONAL_ERROR, WcStatus.LOC_PROT_ERR);
    return;
  }
  qp.counters.receivedMessages++;
  const immediate = info.hasImmediate ? immDt(slab, at + info.offsets.immDt) : 0;
  core.completeReceive(
    qp,
    WcStatus.SUCCESS,
    WcOpcode.RECV,
    GRH_BYTES + payload,
    immediate,
    info.hasImmediate ? WcFlags.GRH | WcFlags.WITH_IMM : WcFlags.GRH,
    bthSolicited(slab, at) === 1,
    dethSrcQp(slab, deth),
  );
}
