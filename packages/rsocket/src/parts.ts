/** The objects of one connection, and their sizes. */
import type { CmId } from '@node-roce/rdmacm';
import type { CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair } from '@node-roce/verbs-api';
import { MAPPING_BYTES, SGE_BYTES, SGL_ENTRIES } from './wire.ts';

/** Sizes of a socket, as `SO_RCVBUF` and `SO_SNDBUF` set them in C. */
export interface BufferOptions {
  /** Bytes that the peer may send before they are read. Default 128 KiB. */
  receiveBuffer?: number | undefined;
  /** Bytes that may be under way to the peer. Default 128 KiB. */
  sendBuffer?: number | undefined;
  /** Messages under way, each way, 8 … 32,767. Default 384. */
  queue?: number | undefined;
  /** Buffers that the peer may offer at a time for `iowrite`, 0 … 128: `RDMA_IOMAPSIZE` in C. Default 0. */
  ioMappings?: number | undefined;
  /** Milliseconds that a close waits for the peer. Default 5000. */
  closeTimeout?: number | undefined;
  /** Milliseconds between WRITEs of nothing, which find out that a silent peer is gone; 0: none. Default 2000. */
  keepAlive?: number | undefined;
}

export const DEFAULTS = {
  receiveBuffer: 131_072,
  sendBuffer: 131_072,
  queue: 384,
  ioMappings: 0,
  closeTimeout: 5000,
  keepAlive: 2000,
};
/** Control messages under way: the peer keeps as many receives back (rsocket.c `RS_QP_CTRL_SIZE`). */
export const MAX_CONTROLS = 4;

export interface Parts {
  id: CmId;
  pd: ProtectionDomain;
  cq: CompletionQueue;
  qp: QueuePair;
  /** Where the peer writes the stream's bytes. */
  ring: MemoryRegion;
  /** Where it announces its buffers, and behind them the memory that it offers. */
  lists: MemoryRegion;
  /** The memory of our WRITEs: bytes, and behind them an announcement for each control message under way. */
  outbox: MemoryRegion;
}

/** Creates the objects of an id that has an address. Where it rejects, none is left; the id is the caller's. */
export async function makeParts(id: CmId, sizes: Required<BufferOptions>): Promise<Parts> {
  const { device } = id;
  const pd = await device.allocPd();
  const undo = [() => pd.dealloc()];
  try {
    const cq = await device.createCq(4 * sizes.queue);
    undo.unshift(() => cq.destroy());
    const qp = await id.createQp(pd, {
      sendCq: cq,
      cap: {
        maxSendWr: sizes.queue + MAX_CONTROLS + 1,
        maxRecvWr: sizes.queue + MAX_CONTROLS,
        maxSendSge: 2,
      },
    });
    undo.unshift(() => qp.close());
    const register = async (bytes: number, access = {}) => {
      const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(bytes)), { access });
      undo.unshift(() => mr.deregister());
      return mr;
    };
    const ring = await register(sizes.receiveBuffer, { remoteWrite: true });
    const listBytes = SGL_ENTRIES * SGE_BYTES + sizes.ioMappings * MAPPING_BYTES;
    const lists = await register(listBytes, { remoteWrite: true });
    const outbox = await register(sizes.sendBuffer + MAX_CONTROLS * SGE_BYTES);
    return { id, pd, cq, qp, ring, lists, outbox };
  } catch (error) {
    for (const step of undo) await step().catch(() => {});
    throw error;
  }
}

/** Destroys all of it, and the id last; never rejects. */
export async function destroyParts({ id, qp, cq, pd, ring, lists, outbox }: Parts): Promise<void> {
  const ignore = () => {};
  qp.asyncEvents.waive();
  cq.asyncEvents.waive();
  await qp.close().catch(ignore);
  for (const each of [ring, lists, outbox]) await each.deregister().catch(ignore);
  await cq.destroy().catch(ignore);
  await pd.dealloc().catch(ignore);
  await id.destroy().catch(ignore);
}
