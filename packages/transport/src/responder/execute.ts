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
import { storePayload } from '../payload-stores.ts';
import { invalidatable } from '../windows.ts';
import { type ConnectedParts, Verdict } from './checks.ts';
import type { RemoteTarget } from './remote-target.ts';

const WORD_BYTES = new Uint8Array(8);
const WORD = new BigUint64Array(WORD_BYTES.buffer);
/** Low half, high half: the order of every processor that Node runs RoCE on. */
const HALVES = new Uint32Array(WORD_BYTES.buffer);

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
  if (!message.write(context, at + info.headerLength, payload, info.last)) return Verdict.REMOTE_ACCESS;
  if (info.last && info.hasImmediate) receives.deliver(WcOpcode.RECV_RDMA_WITH_IMM, message.length, packet);
  return Verdict.PASS;
}

/** The 8 bytes of an ATOMIC_WRITE go to its target at once; there is one, as its length is not 0. @returns false where they can't */
export function executeAtomicWrite(
  { regions }: Context,
  target: RemoteTarget,
  { info, slab, at }: InboundPacket,
): boolean {
  const { view, region, reach } = target.region!;
  if (reach) return reach.push(slab, at + info.headerLength, target.offset, 8);
  storePayload(view, regions.words(region), target.offset, slab, at + info.headerLength, 8);
  return true;
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

  /** Executes the atomic in the packet at its target, and keeps the value from before. @returns false where its memory is gone */
  execute(context: Context, target: RemoteTarget, { info, slab, at }: InboundPacket): boolean {
    context.flushCopies(); // A WRITE before it in this batch is seen by it.
    const { view, region, reach } = target.region!;
    const { offset } = target;
    if (reach && !context.regions.fetched.pull(reach, offset, 8)) return false;
    const eth = at + info.offsets.atomicEth;
    const operand = bigint(atomicEthSwapAddHigh(slab, eth), atomicEthSwapAddLow(slab, eth));
    const isAdd = info.operation === OperationBits.FETCH_ADD;
    const compare = isAdd ? 0n : bigint(atomicEthCompareHigh(slab, eth), atomicEthCompareLow(slab, eth));
    const place = view.byteOffset + offset;
    if ((place & 7) === 0) {
      // The processor's own instruction: a reader of the word sees no half, and a store of another thread is not lost.
      const { eights } = context.regions.words(region);
      const index = place / 8;
      WORD[0] = isAdd
        ? Atomics.add(eights, index, operand)
        : Atomics.compareExchange(eights, index, compare, operand);
    } else {
      // The region has addresses of its own choice (iova): its memory is not aligned as they are.
      for (let i = 0; i < 8; i++) WORD_BYTES[i] = view[offset + i];
      const was = WORD[0];
      if (isAdd) WORD[0] = was + operand;
      else if (was === compare) WORD[0] = operand;
      for (let i = 0; i < 8; i++) view[offset + i] = WORD_BYTES[i];
      WORD[0] = was;
    }
    this.#low = HALVES[0];
    this.#high = HALVES[1];
    return !reach || reach.push(view, offset, offset, 8);
  }
}

/** A number of 64 bits from two halves. */
function bigint(high: number, low: number): bigint {
  HALVES[0] = low;
  HALVES[1] = high;
  return WORD[0];
}
