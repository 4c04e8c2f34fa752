/** Work requests as a program writes them. */
import type { WrOpcodeName } from '@node-roce/transport';
import type { AddressHandle } from '../address-handle.ts';
import type { AccessInit, MemoryRegion } from '../memory-region.ts';
import type { MemoryWindow } from '../memory-window.ts';
import type { NullMemoryRegion } from '../null-region.ts';

/** A part of a registered region (`struct ibv_sge`). */
export interface SgeInit {
  /** The region; of a null region, `length` has to be given. */
  mr: MemoryRegion | NullMemoryRegion;
  /** Bytes from the start of the region; 0 unless given. */
  offset?: number;
  /** Bytes; to the end of the region unless given. */
  length?: number;
}

/** The same as it is known elsewhere: `addr` in the terms of the region's `iova`. Not for inline data. */
export interface RawSge {
  /** 64 bits. */
  addr: bigint;
  /** Bytes. */
  length: number;
  /** The key of the region that the address lies in. */
  lkey: number;
}

/** An element of a scatter/gather list: a region's part, or a view that lies in a registered region. */
export type SgElement = SgeInit | RawSge | Uint8Array;

/** Where a datagram goes (`wr.ud` of `struct ibv_send_wr`). */
export interface Datagram {
  /** The way. */
  ah: AddressHandle;
  /** 24 bits; `0xffffff` for a multicast group. */
  remoteQpn: number;
  /** 32 bits; with the top bit set, the queue pair's own Q_Key is sent (IBTA vol 1 §10.2.5). */
  remoteQkey: number;
}

/** The range and rights of a memory window (`struct ibv_mw_bind_info`). */
export interface MwRange {
  /** Registered with `mwBind`. */
  mr: MemoryRegion;
  /** Bytes from the start of the region; 0 unless given. */
  offset?: number;
  /** Bytes; to the end of the region unless given. */
  length?: number;
  /** The rights of peers: `remoteWrite`, `remoteRead`, `remoteAtomic`, and `zeroBased` for type 2; or bits. */
  access: number | AccessInit;
}

/** BIND_MW: a type 2 window, under a new key. */
export interface MwBind extends MwRange {
  /** The window: of type 2, and not bound. */
  mw: MemoryWindow;
  /** The window's key from now on; only the low 8 bits may and have to differ. `mw.nextRkey` unless given. */
  rkey?: number;
}

/** A remote address and the key that opens it. */
export interface Remote {
  /** 64 bits: what `mr.remote()` gave the peer. */
  addr: bigint;
  /** 32 bits: of a region, or of a window. */
  rkey: number;
}

/** The extent of a FLUSH (IBTA vol 1 annex A19). */
export interface FlushInit {
  /** Bytes from the remote address on. */
  length: number;
  /** RANGE, or MR: all of the region of the key, whatever the address. RANGE unless given. */
  level?: 'RANGE' | 'MR';
  /** GLOBAL: visible to all that read the peer's memory; PERSISTENT: it outlasts a loss of power. GLOBAL unless given. */
  type?: 'GLOBAL' | 'PERSISTENT';
}

/** Options of every send request. */
export interface SendWrCommon {
  /** Comes back in the completion. 0 unless given. */
  wrId?: number | bigint;
  /** Raise a completion on success too. Failures always complete. */
  signaled?: boolean;
  /** Wait until READs and atomics before it are done. */
  fence?: boolean;
  /** XRC_INI: number of the SRQ that it is for, 24 bits (`srq.number` of the peer). */
  remoteSrqn?: number;
}

/** The message of a request. */
export interface SendWrData extends SendWrCommon {
  /** The message's bytes in their order: parts of regions, or views that lie in a registered region. */
  sgList?: readonly SgElement[];
  /** Copy the bytes now: any views do, registered or not, and they can be used again at once. */
  inline?: boolean;
}

/** SEND and its variants: they consume a receive of the peer. */
export interface SendWrMessage extends SendWrData {
  /** Raise the event of a completion queue that waits for solicited completions only. */
  solicited?: boolean;
  /** UD and GSI: where it goes. */
  ud?: Datagram;
}

/** 32 bits, read by the peer in its completion. */
interface WithImmediate {
  immData: number;
}

/** Memory of the peer. */
interface WithRemote {
  remote: Remote;
}

/** A message that consumes a receive of the peer. */
export type SendWrSend = SendWrMessage & { opcode: 'SEND' };
/** A message with immediate data, which the peer reads in its completion. */
export type SendWrSendWithImm = SendWrMessage & WithImmediate & { opcode: 'SEND_WITH_IMM' };
/** A message that invalidates a key of the peer. */
export type SendWrSendWithInv = SendWrMessage & {
  opcode: 'SEND_WITH_INV';
  /** The peer's key to invalidate. */
  invalidateRkey: number;
};
/** Writes into memory of the peer. */
export type SendWrWrite = SendWrData & WithRemote & { opcode: 'RDMA_WRITE' };
/** Writes into memory of the peer, and consumes a receive with immediate data. */
export type SendWrWriteWithImm = SendWrData &
  WithRemote &
  WithImmediate & {
    opcode: 'RDMA_WRITE_WITH_IMM';
    /** As with SEND. */
    solicited?: boolean;
  };
/** Reads memory of the peer. */
export type SendWrRead = SendWrCommon &
  WithRemote & {
    opcode: 'RDMA_READ';
    /** Where the bytes go. */
    sgList?: readonly SgElement[];
  };
/** Compares a 64-bit word of the peer, and replaces it if equal. */
export type SendWrCompareSwap = SendWrCommon &
  WithRemote & {
    opcode: 'ATOMIC_CMP_AND_SWP';
    /** Where the 8 bytes go that the memory held before, in the byte order of this host. */
    sgList: readonly SgElement[];
    /** The value compared with, 64 bits. */
    compareAdd: bigint | number;
    /** The value stored if they are equal, 64 bits. */
    swap: bigint | number;
  };
/** Adds to a 64-bit word of the peer. */
export type SendWrFetchAdd = SendWrCommon &
  WithRemote & {
    opcode: 'ATOMIC_FETCH_AND_ADD';
    /** Where the 8 bytes go that the memory held before, in the byte order of this host. */
    sgList: readonly SgElement[];
    /** The value added, 64 bits, modulo 2^64. */
    compareAdd: bigint | number;
  };
/** Completes once the data written before is in the peer's memory; the peer's queue pair and region have to allow it. */
export type SendWrFlush = SendWrCommon &
  WithRemote & {
    opcode: 'FLUSH';
    /** The extent, and the guarantee. */
    flush: FlushInit;
  };
/** Writes 8 bytes at an address divisible by 8 in one piece, after all that was written or flushed before. */
export type SendWrAtomicWrite = SendWrCommon &
  WithRemote & {
    opcode: 'ATOMIC_WRITE';
    /** The 8 bytes, which go as they are. */
    sgList: readonly SgElement[];
    /** As with SEND. */
    inline?: boolean;
  };
/** Invalidates a key of this side. */
export type SendWrLocalInv = SendWrCommon & {
  opcode: 'LOCAL_INV';
  /** The key of a window of this queue pair. */
  invalidateRkey: number;
};
/** Binds a memory window of type 2. */
export type SendWrBindMw = SendWrCommon & {
  opcode: 'BIND_MW';
  /** The window, and the range that it opens. */
  bind: MwBind;
};

/** `struct ibv_send_wr`: by opcode, with the members that the operation needs or may have, and no others. */
export type SendWr =
  | SendWrSend
  | SendWrSendWithImm
  | SendWrSendWithInv
  | SendWrWrite
  | SendWrWriteWithImm
  | SendWrRead
  | SendWrCompareSwap
  | SendWrFetchAdd
  | SendWrFlush
  | SendWrAtomicWrite
  | SendWrLocalInv
  | SendWrBindMw;

/** The members of all of them, for code that decides by the opcode's row. */
export interface AnySendWr extends SendWrMessage {
  /** The operation. */
  opcode: WrOpcodeName;
  /** With immediate data: 32 bits. */
  immData?: number;
  /** SEND_WITH_INV, LOCAL_INV: the key. */
  invalidateRkey?: number;
  /** RDMA and atomic operations. */
  remote?: Remote;
  /** Atomics: the value compared with, or added. */
  compareAdd?: bigint | number;
  /** Compare-and-swap: the value stored. */
  swap?: bigint | number;
  /** BIND_MW. */
  bind?: MwBind;
  /** FLUSH. */
  flush?: FlushInit;
}

/** `struct ibv_recv_wr`. */
export interface RecvWr {
  /** Comes back in the completion. 0 unless given. */
  wrId?: number | bigint;
  /** Where the message goes, in its order. */
  sgList?: readonly SgElement[];
}

/** `struct ibv_ops_wr`: an operation on the list of tagged buffers. */
export type TagOp = {
  /** Of its completion; default 0. */
  wrId?: number | bigint;
  /** It completes in the queue of `tags`, with TM_ADD, TM_DEL or TM_SYNC; one that fails completes in any case. Default false. */
  signaled?: boolean;
  /** Unexpected messages that the program has handled so far, modulo 2^32. Before it has reported all, new buffers match nothing. */
  handled?: number;
} & (
  | {
      opcode: 'TAG_ADD';
      /** Of the receive's completion; default 0. */
      recvWrId?: number | bigint;
      /** 64 bits: messages match of which `tag & mask` is this. */
      tag: bigint;
      /** Default all ones. */
      mask?: bigint;
      sgList: readonly SgElement[];
    }
  | { opcode: 'TAG_DEL'; handle: number }
  | { opcode: 'TAG_SYNC' }
);
