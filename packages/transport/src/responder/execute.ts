/** The effects of requests that passed their checks, on memory and the receive queue. */
import {
  atomicEthCompareHigh,
  atomicEthCompareLow,
  atomicEthSwapAddHigh,
  atomicEthSwapAddLow,
  iethRkey,
  OperationBits,
  rethLength,
} from '@node-roce/wire';
import { WcOpcode } from '../constants.ts';
import type { Context } from '../context.ts';
import type { InboundPacket } from '../inbound.ts';
import { invalidatable } from '../windows.ts';
import { type ConnectedParts, Verdict } from './checks.ts';
import type { RemoteTarget } from './remote-target.ts';

const WORD_BYTES = new Uint8Array(8);
const WORD = new BigUint64Array(WORD_BYTES.buffer);

/** Payload of a SEND goes into the receive in use; the last packet completes it. */
export function executeSend(r: ConnectedParts, packet: InboundPacket): number {
  const { context, owner, message, receives } = r;
  const { info, slab, at, payload } = packet;
  if (!receives.fill(at + info.headerLength, payload)) return Verdict.BAD_RECEIVE;
  if (info.hasInvalidate) {
    const window = invalidatable(context, owner, iethRkey(slab, at + info.offsets.ieth));
    if (window) context.memory.unbind(window);
  }
  message.send(info.last);
  if (info.last) receives.deliver(WcOpcode.RECV, receives.filled, packet);
  return Verdict.PASS;
}

/** Payload of a WRITE goes to memory; immediate data completes a receive. */
export function executeWrite(r: ConnectedParts, packet: InboundPacket): number {
  const { context, owner, message, receives, target } = r;
  const { info, slab, at, payload } = packet;
  if (info.first) {
    message.beginWrite(target.region, target.offset, rethLength(slab, at + info.offsets.reth));
    owner.counters.writeRequests++;
  }
  message.write(context, at + info.headerLength, payload, info.last);
  if (info.last && info.hasImmediate) receives.deliver(WcOpcode.RECV_RDMA_WITH_IMM, message.length, packet);
  return Verdict.PASS;
}

/** The 8 bytes of an ATOMIC_WRITE go to its target at once; there is one, as its length is not 0. */
export function executeAtomicWrite(target: RemoteTarget, { info, slab, at }: InboundPacket): void {
  const { view } = target.region!;
  const { offset } = target;
  const source = at + info.headerLength;
  if (((view.byteOffset + offset) & 7) !== 0) {
    // The region has addresses of its own choice (iova): its memory is not aligned as they are.
    for (let i = 0; i < 8; i++) view[offset + i] = slab[source + i];
    return;
  }
  for (let i = 0; i < 8; i++) WORD_BYTES[i] = slab[source + i];
  // One store, of which another thread sees all or nothing.
  Atomics.store(new BigUint64Array(view.buffer, view.byteOffset + offset, 1), 0, WORD[0]);
}

/** The value that an atomic found: the low and the high half of the eight bytes, in the machine's byte order. */
export class AtomicResult {
  #high = 0;
  #low = 0;

  get high(): number {
    return this.#high;
  }
  get low(): number {
    return this.#low;
  }

  /** Executes the atomic in the packet at its target, and keeps the value from before. */
  execute(context: Context, target: RemoteTarget, { info, slab, at }: InboundPacket): void {
    context.flushCopies(); // A WRITE before it in this batch is seen by it.
    const bytes = target.region!.view;
    const { offset } = target;
    const eth = at + info.offsets.atomicEth;
    const wasLow = readHost32(bytes, offset);
    const wasHigh = readHost32(bytes, offset + 4);
    const operandHigh = atomicEthSwapAddHigh(slab, eth);
    const operandLow = atomicEthSwapAddLow(slab, eth);
    if (info.operation === OperationBits.FETCH_ADD) {
      const sum = wasLow + operandLow;
      writeHost32(bytes, offset, sum >>> 0);
      writeHost32(bytes, offset + 4, (wasHigh + operandHigh + (sum > 0xffff_ffff ? 1 : 0)) >>> 0);
    } else if (wasHigh === atomicEthCompareHigh(slab, eth) && wasLow === atomicEthCompareLow(slab, eth)) {
      writeHost32(bytes, offset, operandLow);
      writeHost32(bytes, offset + 4, operandHigh);
    }
    this.#high = wasHigh;
    this.#low = wasLow;
  }
}

function readHost32(b: Uint8Array, o: number): number {
  return (b[o] | (b[o + 1] << 8) | (b[o + 2] << 16) | (b[o + 3] << 24)) >>> 0;
}

function writeHost32(b: Uint8Array, o: number, value: number): void {
  b[o] = value;
  b[o + 1] = value >>> 8;
  b[o + 2] = value >>> 16;
  b[o + 3] = value >>> 24;
}
