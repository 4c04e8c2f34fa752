/** Turns what the responder owes into packets: ACK, NAK, READ responses, atomic results. */
import {
  AETH_BYTES,
  ATOMIC_ACK_ETH_BYTES,
  BTH_BYTES,
  BTH_PAD_SHIFT,
  BthFlags,
  CREDIT_UNLIMITED,
  creditCodeFor,
  NakCode,
  Opcode,
  psnAdd,
  writeAeth,
  writeAtomicAck,
  writeBth,
} from '@node-roce/wire';
import { TX_HEADER_STRIDE, type TxBatch } from './batch.ts';
import type { Core } from './core.ts';
import type { QueuePair } from './qp.ts';
import { type Reply, ReplyKind } from './reply-queue.ts';
import { DEFAULT_PKEY, finishSlot } from './request-packets.ts';
import { addFragment } from './sge.ts';

/** Adds up to `budget` response packets to the batch. */
export function transmitReplies(core: Core, qp: QueuePair, batch: TxBatch, budget: number): number {
  let sent = 0;
  while (sent < budget && !batch.full) {
    const reply = qp.replies.first;
    if (!reply) break;
    if (reply.kind === ReplyKind.READ) {
      // Without its region a NAK stands in its place, which goes at once: the turn that adds nothing is the last.
      if (transmitResponse(core, qp, batch, reply)) sent++;
      continue;
    }
    sent++;
    const base = batch.count * TX_HEADER_STRIDE;
    let length = BTH_BYTES + AETH_BYTES;
    if (reply.kind === ReplyKind.ATOMIC) {
      writeBth(
        batch.headers,
        base,
        Opcode.RC_ATOMIC_ACKNOWLEDGE,
        BthFlags.MIG_REQ,
        DEFAULT_PKEY,
        qp.destQpn,
        reply.psn,
      );
      writeAeth(batch.headers, base + BTH_BYTES, credits(core, qp), reply.msn);
      writeAtomicAck(batch.headers, base + length, reply.valueHigh, reply.valueLow);
      length += ATOMIC_ACK_ETH_BYTES;
    } else {
      const syndrome = reply.kind === ReplyKind.NAK ? reply.syndrome : credits(core, qp);
      writeBth(
        batch.headers,
        base,
        Opcode.RC_ACKNOWLEDGE,
        BthFlags.MIG_REQ,
        DEFAULT_PKEY,
        qp.destQpn,
        reply.psn,
      );
      writeAeth(batch.headers, base + BTH_BYTES, syndrome, reply.msn);
    }
    finishSlot(qp, batch, length, batch.fragmentCount, 0, 0);
    qp.replies.shift();
  }
  return sent;
}

/** The next response of a READ. False if its region is gone: the requester is told, and no more is sent. */
function transmitResponse(core: Core, qp: QueuePair, batch: TxBatch, reply: Reply): boolean {
  const { sent, packets, mr } = reply;
  const { pathMtu } = qp;
  const psn = psnAdd(reply.psn, sent);
  const first = sent === 0;
  const last = sent === packets - 1;
  const start = sent * pathMtu;
  const size = last ? reply.length - start : pathMtu;
  if (mr && (!mr.valid || mr.view.byteLength < reply.offset + start + size)) {
    qp.replies.reset(qp.maxDestRdAtomic);
    const nak = qp.replies.push(ReplyKind.NAK, psn, qp.msn);
    if (nak) nak.syndrome = NakCode.REMOTE_ACCESS_ERROR;
    core.schedule(qp);
    core.toError(qp);
    qp.counters.sentAccessErr++;
    core.event({ type: 'QP_ACCESS_ERR', qpn: qp.qpn });
    return false;
  }
  const pad = -size & 3;
  const base = batch.count * TX_HEADER_STRIDE;
  const opcode = first
    ? last
      ? Opcode.RC_RDMA_READ_RESPONSE_ONLY
      : Opcode.RC_RDMA_READ_RESPONSE_FIRST
    : last
      ? Opcode.RC_RDMA_READ_RESPONSE_LAST
      : Opcode.RC_RDMA_READ_RESPONSE_MIDDLE;
  let length = BTH_BYTES;
  writeBth(
    batch.headers,
    base,
    opcode,
    BthFlags.MIG_REQ | (pad << BTH_PAD_SHIFT),
    DEFAULT_PKEY,
    qp.destQpn,
    psn,
  );
  if (first || last) {
    writeAeth(batch.headers, base + length, credits(core, qp), reply.msn);
    length += AETH_BYTES;
  }
  const firstFragment = batch.fragmentCount;
  if (mr && size > 0) addFragment(batch, mr.region, reply.offset + start, size);
  finishSlot(qp, batch, length, firstFragment, size, pad);
  if (last) qp.replies.shift();
  else reply.sent++;
  return true;
}

/** AETH syndrome of an ACK: the posted receives as a credit code; none with an SRQ (§9.7.7.2.4). */
function credits(core: Core, qp: QueuePair): number {
  return core.credits && !qp.srq ? creditCodeFor((qp.rq.producer - qp.rqHead) | 0) : CREDIT_UNLIMITED;
}
