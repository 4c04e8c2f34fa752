/** Work completions (`struct ibv_wc`) and the errors they stand for. */
import {
  invalid,
  RoceError,
  WC_STATUS_NAMES,
  WcFlags,
  WcOpcode,
  type WcOpcodeName,
  WcStatus,
  type WcStatusName,
} from '@node-roce/transport';
import { TWO_32 } from '@node-roce/wire';
import { custom, hex, line } from './inspect.ts';
import { checkArgument, described, STRING } from './options.ts';

const OPCODE_NAMES = new Map(
  Object.entries(WcOpcode).map(([name, value]) => [value as number, name as WcOpcodeName]),
);

/** A work completion (`struct ibv_wc`). Filled anew by each poll that is given it. */
export class WorkCompletion {
  /** The low 32 bits of `wrId`. */
  wrIdLow = 0;
  /** The high 32 bits of `wrId`. */
  wrIdHigh = 0;
  /** `WcStatus`. */
  statusCode = 0;
  /** `WcOpcode`; not valid unless the status is SUCCESS. */
  opcodeCode = 0;
  /** Bytes received, read or written. */
  byteLen = 0;
  /** Local QPN. */
  qpNum = 0;
  /** QPN of the sender. */
  srcQp = 0;
  /** `WcFlags`. */
  flags = 0;
  /** 0. */
  vendorErr = 0;
  /**
   * Of a queue with `timestamps`: when the packet arrived that completed it, ns of the clock of `process.hrtime`; `wallClock`
   * makes a date of it. Of other queues 0.
   */
  timestamp = 0;
  /** The high 32 bits of `tag`. */
  tagHigh = 0;
  /** The low 32 bits of `tag`. */
  tagLow = 0;
  /** Of a queue with `tags`: the application's data in the header of a message that a tagged buffer got; else 0. */
  tagData = 0;
  /** The word behind `immData` and `invalidatedRkey`. */
  immediate = 0;
  /** Of a failure on a connected queue pair that is still open: the other side, as messages name it (`QP 7 at 192.0.2.1`). */
  peer: string | undefined = undefined;
  /** Of an awaited request, whose `wrId` the program did not choose. @internal */
  awaited = false;

  /** @internal */
  [custom](): string {
    const { wrId, status, ok, qpNum, byteLen, immData } = this;
    return line('WorkCompletion', {
      wrId,
      status,
      ...(ok ? { opcode: this.opcode, byteLen, immData } : {}),
      qpNum: hex(qpNum),
    });
  }

  /** The work request's `wrId`. */
  get wrId(): bigint {
    return (BigInt(this.wrIdHigh) << 32n) | BigInt(this.wrIdLow);
  }
  /** The same as a number, without allocation; exact up to 2^53. */
  get wrIdNumber(): number {
    return this.wrIdHigh * TWO_32 + this.wrIdLow;
  }
  /** Of a queue with `tags`: the tag of a message that a tagged buffer got; else 0. */
  get tag(): bigint {
    return (BigInt(this.tagHigh) << 32n) | BigInt(this.tagLow);
  }
  /** The status is SUCCESS. */
  get ok(): boolean {
    return this.statusCode === WcStatus.SUCCESS;
  }
  /** `SUCCESS`, or how it failed (IBTA vol 1 §11.6.2). */
  get status(): WcStatusName {
    return WC_STATUS_NAMES[this.statusCode];
  }
  /** The completed operation; of a failure that of the request, where libibverbs promises nothing. */
  get opcode(): WcOpcodeName {
    return OPCODE_NAMES.get(this.opcodeCode) ?? 'SEND';
  }
  /** A datagram: the receive begins with 40 bytes that hold the sender's IP header (`IBV_WC_GRH`). */
  get hasGrh(): boolean {
    return (this.flags & WcFlags.GRH) !== 0;
  }
  /** Immediate data, if there is any. */
  get immData(): number | undefined {
    return (this.flags & WcFlags.WITH_IMM) !== 0 ? this.immediate : undefined;
  }
  /** The key that the peer's SEND_WITH_INV invalidated, if it did. */
  get invalidatedRkey(): number | undefined {
    return (this.flags & WcFlags.WITH_INV) !== 0 ? this.immediate : undefined;
  }
}

/** Statuses in plain words; docs/errors.md has causes and remedies. */
const MEANINGS: Partial<Record<WcStatusName, string>> = {
  LOC_LEN_ERR: 'a message is longer than its receive, or a datagram than the MTU',
  LOC_QP_OP_ERR: 'this queue pair cannot execute the request',
  LOC_PROT_ERR: 'there is no local memory with that key, range and right',
  WR_FLUSH_ERR: 'discarded, because the queue pair came to the error state before',
  MW_BIND_ERR: 'the window could not be bound',
  REM_INV_REQ_ERR: 'the peer refuses the request',
  REM_ACCESS_ERR: 'the peer has no memory with that key, range and right',
  REM_OP_ERR: 'the peer could not complete the request',
  RETRY_EXC_ERR: 'the peer does not answer',
  RNR_RETRY_EXC_ERR: 'the peer has no receive posted',
  TM_ERR: 'the list has no buffer with that handle: a message may have consumed it',
};

/** `RDMA_WRITE (wrId 3) of QP 5 to QP 7 at 192.0.2.1`. */
function requestOf(wc: WorkCompletion): string {
  const id = wc.awaited ? '' : ` (wrId ${wc.wrId})`;
  const direction = wc.opcodeCode >= WcOpcode.RECV ? 'from' : 'to';
  const peer = wc.peer === undefined ? '' : ` ${direction} ${wc.peer}`;
  return `${wc.opcode}${id} of QP ${wc.qpNum}${peer}`;
}

/**
 * The error that a completion stands for. Its message names the request, the peer and the status.
 *
 * @param meaning what the status means in this program, in place of what it means in general
 */
export function completionError(wc: WorkCompletion, meaning?: string): RoceError {
  if (!(wc instanceof WorkCompletion)) throw invalid('wc', described(wc), 'a WorkCompletion');
  if (meaning !== undefined) checkArgument('meaning', meaning, STRING);
  const words = meaning ?? MEANINGS[wc.status] ?? 'the request failed';
  return new RoceError('ERR_ROCE_COMPLETION', `${words}: ${requestOf(wc)} ended with ${wc.status}`, {
    errno: 'EIO',
    attribute: wc.status,
  });
}
