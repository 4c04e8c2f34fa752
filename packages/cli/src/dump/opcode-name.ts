/** Opcodes in words, as Wireshark has them in its list of opcodes (packet-infiniband.c, `OpCodeMap`). */
import { type OpcodeInfo, OperationBits } from '@node-roce/wire';

/** By the low five bits; Wireshark writes the service before it. Its newer opcodes are named likewise. */
const operations: Readonly<Record<number, string>> = {
  [OperationBits.SEND_FIRST]: 'SEND First',
  [OperationBits.SEND_MIDDLE]: 'SEND Middle',
  [OperationBits.SEND_LAST]: 'SEND Last',
  [OperationBits.SEND_LAST_WITH_IMMEDIATE]: 'SEND Last with Immediate',
  [OperationBits.SEND_ONLY]: 'SEND Only',
  [OperationBits.SEND_ONLY_WITH_IMMEDIATE]: 'SEND Only with Immediate',
  [OperationBits.RDMA_WRITE_FIRST]: 'RDMA WRITE First',
  [OperationBits.RDMA_WRITE_MIDDLE]: 'RDMA WRITE Middle',
  [OperationBits.RDMA_WRITE_LAST]: 'RDMA WRITE Last',
  [OperationBits.RDMA_WRITE_LAST_WITH_IMMEDIATE]: 'RDMA WRITE Last with Immediate',
  [OperationBits.RDMA_WRITE_ONLY]: 'RDMA WRITE Only',
  [OperationBits.RDMA_WRITE_ONLY_WITH_IMMEDIATE]: 'RDMA WRITE Only with Immediate',
  [OperationBits.RDMA_READ_REQUEST]: 'RDMA READ Request',
  [OperationBits.RDMA_READ_RESPONSE_FIRST]: 'RDMA READ response First',
  [OperationBits.RDMA_READ_RESPONSE_MIDDLE]: 'RDMA READ response Middle',
  [OperationBits.RDMA_READ_RESPONSE_LAST]: 'RDMA READ response Last',
  [OperationBits.RDMA_READ_RESPONSE_ONLY]: 'RDMA READ response Only',
  [OperationBits.ACKNOWLEDGE]: 'Acknowledge',
  [OperationBits.ATOMIC_ACKNOWLEDGE]: 'ATOMIC Acknowledge',
  [OperationBits.COMPARE_SWAP]: 'CmpSwap',
  [OperationBits.FETCH_ADD]: 'FetchAdd',
  [OperationBits.RESYNC]: 'RESYNC',
  [OperationBits.SEND_LAST_WITH_INVALIDATE]: 'SEND Last with Invalidate',
  [OperationBits.SEND_ONLY_WITH_INVALIDATE]: 'SEND Only with Invalidate',
  [OperationBits.FLUSH]: 'FLUSH',
  [OperationBits.ATOMIC_WRITE]: 'ATOMIC WRITE',
};

/** `RC RDMA WRITE First` for opcode 6. */
export function opcodeName({ transportName, operation }: OpcodeInfo): string {
  if (transportName === 'CNP') return 'CNP';
  const name = operations[operation]!;
  // Wireshark's two rows of UD have a small letter.
  return `${transportName} ${transportName === 'UD' ? name.replace('Only', 'only') : name}`;
}
