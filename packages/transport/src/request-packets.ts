/** The packets of send entries: headers, and payload by reference. */
import {
  ATOMIC_ETH_BYTES,
  BTH_ACK_REQ,
  BTH_BYTES,
  BTH_PAD_SHIFT,
  BthFlags,
  DETH_BYTES,
  IETH_BYTES,
  IMM_DT_BYTES,
  Opcode,
  psnAdd,
  RETH_BYTES,
  writeAtomicEth,
  writeBth,
  writeDeth,
  writeIeth,
  writeImmDt,
  writeReth,
} from '@node-roce/wire';
import type { AddressHandle } from './addresses.ts';
import { TX_HEADER_STRIDE, TX_SLOT_WORDS, Tx, type TxBatch } from './batch.ts';
import { SendFlags, WcStatus, WrOpcode } from './constants.ts';
import type { Core } from './core.ts';
import { pacedAckInterval } from './pacing.ts';
import type { QueuePair } from './qp.ts';
import { SendWqe } from './rings.ts';
import { failCursor, isResponded, takesReceive } from './send-entry.ts';
import { addFragment, gather } from './sge.ts';

/** P_Key of a RoCE port: the default partition, full member. */
export const DEFAULT_PKEY = 0xffff;

/** Responses that one READ request asks for, at most. */
const READ_CHUNK_MAX = 64;

/**
 * What a datagram with this much payload is charged against a socket's receive buffer: the kernel's
 * buffer for it is the next power of two, plus its bookkeeping (measured: 4112 B → 8520, 1040 → 2315).
 */
export function receiveCharge(pathMtu: number): number {
  return 2 * pathMtu + 512;
}

/** Splits READs so that a receive buffer of `budget` bytes holds the responses of two requests. */
export function readChunkFor(pathMtu: number, budget: number): number {
  return Math.min(READ_CHUNK_MAX, Math.max(1, Math.floor(budget / 2 / receiveCharge(pathMtu))));
}

function isWrite(opcode: number): boolean {
  return opcode === WrOpcode.RDMA_WRITE || opcode === WrOpcode.RDMA_WRITE_WITH_IMM;
}

/** Adds the packet under the cursor to the batch; returns the PSNs it takes, 0 if it can't go now. */
export function writeRequest(core: Core, qp: QueuePair, batch: TxBatch, out: number): number {
  const w = qp.sq.wordOf(qp.sqCursor);
  const words = qp.sq.words;
  const opcode = words[w + SendWqe.OPCODE_FLAGS] & 0xff;
  if (opcode === WrOpcode.RDMA_READ) return writeRead(core, qp, batch, w);
  if (isResponded(opcode)) return writeAtomic(qp, batch, w, opcode);

  const at = qp.sqCursor & (qp.sq.capacity - 1);
  const flags = words[w + SendWqe.OPCODE_FLAGS] >>> 8;
  const length = words[w + SendWqe.LENGTH];
  const first = qp.cursorPacket === 0;
  const last = qp.cursorPacket === qp.wqePackets[at] - 1;
  const start = qp.cursorPacket * qp.pathMtu;
  const size = last ? length - start : qp.pathMtu;
  const fragments = batch.fragmentCount;

  const ah = qp.datagram ? core.addresses.ah(words[w + SendWqe.ADDRESS_HANDLE]) : undefined;
  if (qp.datagram && !ah) return failCursor(core, qp, WcStatus.LOC_QP_OP_ERR);
  if ((flags & SendFlags.INLINE) !== 0) {
    if (size > 0) addFragment(batch, qp.sqRegion, (w + SendWqe.SGE) * 4 + start, size);
  } else if (!gather(core, qp, batch, w, size)) {
    batch.fragmentCount = fragments;
    return failCursor(core, qp, WcStatus.LOC_PROT_ERR);
  }

  qp.sinceAckReq++;
  const atLimit = out - qp.readPackets + 1 >= qp.window;
  const enough = qp.rateLimit === 0 ? Math.max(4, qp.window >> 2) : pacedAckInterval(qp);
  const ackReq = qp.reliable && (last || atLimit || qp.sinceAckReq >= enough);
  const pad = -size & 3;
  const solicited = last && (flags & SendFlags.SOLICITED) !== 0 && takesReceive(opcode);

  const header = batch.headers;
  const base = batch.count * TX_HEADER_STRIDE;
  let o = base + BTH_BYTES;
  let destQpn = qp.destQpn;
  if (qp.datagram) {
    destQpn = words[w + SendWqe.REMOTE_QPN];
    // The top bit asks for the Q_Key of the sender's own context (IBTA vol 1 §10.2.5).
    const qkey = words[w + SendWqe.REMOTE_QKEY];
    writeDeth(header, o, qkey >>> 31 === 1 ? qp.qkey : qkey, qp.qpn);
    o += DETH_BYTES;
  }
  let wireOpcode: number;
  if (isWrite(opcode)) {
    wireOpcode = first
      ? last
        ? Opcode.RC_RDMA_WRITE_ONLY
        : Opcode.RC_RDMA_WRITE_FIRST
      : last
        ? Opcode.RC_RDMA_WRITE_LAST
        : Opcode.RC_RDMA_WRITE_MIDDLE;
    if (first) {
      const high = words[w + SendWqe.REMOTE_ADDRESS_HIGH];
      writeReth(header, o, high, words[w + SendWqe.REMOTE_ADDRESS_LOW], words[w + SendWqe.RKEY], length);
      o += RETH_BYTES;
    }
    if (last && opcode === WrOpcode.RDMA_WRITE_WITH_IMM) {
      wireOpcode++;
      writeImmDt(header, o, words[w + SendWqe.IMMEDIATE]);
      o += IMM_DT_BYTES;
    }
  } else {
    wireOpcode = first
      ? last
        ? Opcode.RC_SEND_ONLY
        : Opcode.RC_SEND_FIRST
      : last
        ? Opcode.RC_SEND_LAST
        : Opcode.RC_SEND_MIDDLE;
    if (last && opcode === WrOpcode.SEND_WITH_IMM) {
      wireOpcode++;
      writeImmDt(header, o, words[w + SendWqe.IMMEDIATE]);
      o += IMM_DT_BYTES;
    } else if (last && opcode === WrOpcode.SEND_WITH_INV) {
      wireOpcode = first ? Opcode.RC_SEND_ONLY_WITH_INVALIDATE : Opcode.RC_SEND_LAST_WITH_INVALIDATE;
      writeIeth(header, o, words[w + SendWqe.IMMEDIATE]);
      o += IETH_BYTES;
    }
  }
  const bits = BthFlags.MIG_REQ | (pad << BTH_PAD_SHIFT) | (solicited ? BthFlags.SOLICITED : 0);
  writeBth(
    header,
    base,
    qp.transport | wireOpcode,
    bits,
    DEFAULT_PKEY,
    destQpn,
    ackReq ? BTH_ACK_REQ | qp.cursorPsn : qp.cursorPsn,
  );
  if (ackReq) {
    qp.sinceAckReq = 0;
    timePacket(core, qp);
  }
  finishSlot(qp, batch, o - base, fragments, size, pad);
  if (ah) addressSlot(qp, batch, ah);
  return 1;
}

/** One request for up to a chunk of responses. */
function writeRead(core: Core, qp: QueuePair, batch: TxBatch, w: number): number {
  if (qp.rdCount >= qp.maxRdAtomic) return 0;
  const words = qp.sq.words;
  const at = qp.sqCursor & (qp.sq.capacity - 1);
  // Chunks begin at multiples of their size, so that a resumed READ ends where the first request ended.
  const chunkEnd = (Math.floor(qp.cursorPacket / qp.readChunk) + 1) * qp.readChunk;
  const packets = Math.min(chunkEnd, qp.wqePackets[at]) - qp.cursorPacket;
  // Responses count against the window as packets do, after a loss all that is out is asked for again; but two
  // requests may always be out, so that the peer has one to answer while the other's answer travels.
  const most = Math.max(qp.window, 2 * qp.readChunk);
  const tooMany = packets * qp.readCharge > core.readBudget || qp.readPackets + packets > most;
  if (tooMany && qp.readPackets > 0) return 0;

  const start = qp.cursorPacket * qp.pathMtu;
  const length = Math.min(packets * qp.pathMtu, words[w + SendWqe.LENGTH] - start);
  let high = words[w + SendWqe.REMOTE_ADDRESS_HIGH];
  let low = words[w + SendWqe.REMOTE_ADDRESS_LOW] + start;
  if (low >= 0x1_0000_0000) {
    low -= 0x1_0000_0000;
    high = (high + 1) >>> 0;
  }
  const base = batch.count * TX_HEADER_STRIDE;
  writeReth(batch.headers, base + BTH_BYTES, high, low, words[w + SendWqe.RKEY], length);
  writeBth(
    batch.headers,
    base,
    Opcode.RC_RDMA_READ_REQUEST,
    BthFlags.MIG_REQ,
    DEFAULT_PKEY,
    qp.destQpn,
    BTH_ACK_REQ | qp.cursorPsn,
  );
  core.readBudget -= packets * qp.readCharge;
  qp.readPackets += packets;
  noteResponse(qp, psnAdd(qp.cursorPsn, packets - 1));
  timePacket(core, qp);
  finishSlot(qp, batch, BTH_BYTES + RETH_BYTES, batch.fragmentCount, 0, 0);
  return packets;
}

function writeAtomic(qp: QueuePair, batch: TxBatch, w: number, opcode: number): number {
  if (qp.rdCount >= qp.maxRdAtomic) return 0;
  const words = qp.sq.words;
  const base = batch.count * TX_HEADER_STRIDE;
  const swap = opcode === WrOpcode.ATOMIC_CMP_AND_SWP;
  // FETCH_ADD carries its operand where CMP_SWAP carries the new value (§9.4.5.1).
  writeAtomicEth(
    batch.headers,
    base + BTH_BYTES,
    words[w + SendWqe.REMOTE_ADDRESS_HIGH],
    words[w + SendWqe.REMOTE_ADDRESS_LOW],
    words[w + SendWqe.RKEY],
    words[w + (swap ? SendWqe.SWAP_HIGH : SendWqe.COMPARE_ADD_HIGH)],
    words[w + (swap ? SendWqe.SWAP_LOW : SendWqe.COMPARE_ADD_LOW)],
    swap ? words[w + SendWqe.COMPARE_ADD_HIGH] : 0,
    swap ? words[w + SendWqe.COMPARE_ADD_LOW] : 0,
  );
  const wireOpcode = swap ? Opcode.RC_COMPARE_SWAP : Opcode.RC_FETCH_ADD;
  writeBth(
    batch.headers,
    base,
    wireOpcode,
    BthFlags.MIG_REQ,
    DEFAULT_PKEY,
    qp.destQpn,
    BTH_ACK_REQ | qp.cursorPsn,
  );
  noteResponse(qp, qp.cursorPsn);
  finishSlot(qp, batch, BTH_BYTES + ATOMIC_ETH_BYTES, batch.fragmentCount, 0, 0);
  return 1;
}

/** A READ or atomic request is out, to be answered up to this PSN. */
function noteResponse(qp: QueuePair, lastPsn: number): void {
  qp.rdEnds[(qp.rdHead + qp.rdCount++) & 127] = lastPsn;
}

function timePacket(core: Core, qp: QueuePair): void {
  if (qp.timedPsn >= 0 || qp.cursorPsn !== qp.sendPsn) return;
  qp.timedPsn = qp.cursorPsn;
  qp.timedAt = core.now;
}

/** The words of the slot whose header was just written. */
export function finishSlot(
  qp: QueuePair,
  batch: TxBatch,
  headerLength: number,
  firstFragment: number,
  payload: number,
  pad: number,
): void {
  const s = batch.slots;
  const w = batch.count * TX_SLOT_WORDS;
  s[w + Tx.HEADER_OFFSET] = batch.count * TX_HEADER_STRIDE;
  s[w + Tx.HEADER_LENGTH] = headerLength;
  s[w + Tx.FRAGMENT_FIRST] = firstFragment;
  s[w + Tx.FRAGMENT_COUNT] = batch.fragmentCount - firstFragment;
  s[w + Tx.PAYLOAD_LENGTH] = payload;
  s[w + Tx.PAD] = pad;
  s[w + Tx.PEER] = qp.peer;
  s[w + Tx.TRAFFIC_CLASS] = qp.trafficClass;
  s[w + Tx.SOURCE_PORT] = qp.sourcePort;
  s[w + Tx.QPN] = qp.qpn;
  s[w + Tx.STATUS] = 0;
  s[w + Tx.ENTRY] = qp.sqCursor;
  batch.count++;
  qp.counters.sentPackets++;
}

/** A datagram goes where its address handle says. */
function addressSlot(qp: QueuePair, batch: TxBatch, ah: AddressHandle): void {
  const w = (batch.count - 1) * TX_SLOT_WORDS;
  batch.slots[w + Tx.PEER] = ah.peer;
  batch.slots[w + Tx.TRAFFIC_CLASS] = ah.trafficClass;
  batch.slots[w + Tx.SOURCE_PORT] = ah.sourcePort(qp.qpn);
}
