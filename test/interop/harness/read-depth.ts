/** How many READs a requester had outstanding at once, by a capture of the wire. */
import { Opcode, psnAdd, psnDiff, psnLessOrEqual } from '@node-roce/wire';
import type { WirePacket } from './wire.ts';

const { RC_RDMA_READ_REQUEST, RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_ONLY } = Opcode;
/** Offset of the RETH's length, behind the BTH and the RETH's address and key. */
const DMA_LENGTH = 24;

const isResponse = (opcode: number) =>
  opcode >= RC_RDMA_READ_RESPONSE_FIRST && opcode <= RC_RDMA_READ_RESPONSE_ONLY;

/**
 * Returns the largest number of READ requests that were not answered at the same time. A request for a PSN of an earlier request
 * repeats it, all or a part, answered or not: the responder serves it from the same resource, and it does not count again.
 *
 * @param requester its IP address
 * @param late seconds after which answers in the capture reach the requester
 */
export function readDepth(
  packets: readonly WirePacket[],
  requester: string,
  pathMtu: number,
  late = 0,
): number {
  const reaches = ({ source, time }: WirePacket) => (source === requester ? time : time + late);
  const inOrder = [...packets].sort((a, b) => reaches(a) - reaches(b));
  const requests: { first: number; last: number; answered: boolean }[] = [];
  let most = 0;
  for (const { source, opcode, psn, payload } of inOrder) {
    if (source === requester && opcode === RC_RDMA_READ_REQUEST) {
      if (requests.some(({ first, last }) => psnLessOrEqual(first, psn) && psnLessOrEqual(psn, last)))
        continue;
      const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
      const responses = Math.max(1, Math.ceil(view.getUint32(DMA_LENGTH) / pathMtu));
      requests.push({ first: psn, last: psnAdd(psn, responses - 1), answered: false });
      most = Math.max(most, requests.filter(({ answered }) => !answered).length);
    } else if (source !== requester && isResponse(opcode)) {
      for (const request of requests) if (psnDiff(request.last, psn) <= 0) request.answered = true;
    }
  }
  return most;
}
