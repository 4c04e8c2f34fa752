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
import { described } from './options.ts';

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
  /** The word behind `immData` and `invalidatedRkey`. */
  immediate = 0;

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
  /** The status is SUCCESS. */
  get ok(): boolean {
    return this.statusCode === WcStatus.SUCCESS;
  }
  /** `SUCCESS`, or how it failed (IBTA vol 1 §11.6.2). */
  get status(): WcStatusName {
    return WC_STATUS_NAMES[this.statusCode];
  }
  /** The completed operation; not valid unless the status is SUCCESS. */
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

/** The error that a completion stands for. */
export function completionError(wc: WorkCompletion): RoceError {
  if (!(wc instanceof WorkCompletion)) throw invalid('wc', described(wc), 'a WorkCompletion');
  return new RoceError(
    'ERR_ROCE_COMPLETION',
    `work request ${wc.wrId} of QP ${wc.qpNum} ended with ${wc.status}`,
    {
      errno: 'EIO',
      attribute: wc.status,
    },
  );
}
