/** RoCE on the wire: headers, opcodes, sequence numbers, the invariant CRC, whole packets. */

export * from './bytes.ts';
export * from './crc32.ts';
export type { Extensions } from './extensions.ts';
export * from './format.ts';
export * from './gid.ts';
export * from './headers/aeth.ts';
export * from './headers/atomic.ts';
export * from './headers/bth.ts';
export * from './headers/datagram.ts';
export * from './headers/reth.ts';
export * from './headers/small.ts';
export * from './icrc.ts';
export * from './mtu.ts';
export * from './network.ts';
export * from './opcodes.ts';
export * from './packet.ts';
export * from './port.ts';
export * from './psn.ts';
export * from './timers.ts';
