/** RoCE on the wire: headers, opcodes, sequence numbers, the invariant CRC, whole packets, management datagrams. */

export * from './build.ts';
export * from './bytes.ts';
export * from './crc32.ts';
export type { Extensions, PartialExtensions } from './extensions.ts';
export * from './format.ts';
export * from './gid.ts';
export * from './headers/aeth.ts';
export * from './headers/atomic.ts';
export * from './headers/bth.ts';
export * from './headers/datagram.ts';
export * from './headers/reth.ts';
export * from './headers/small.ts';
export * from './icrc.ts';
export * from './mad/cm.ts';
export { CM_LAYOUTS, CmAttribute, type CmName } from './mad/cm-layouts.ts';
export * from './mad/cm-values.ts';
export type { Field, FieldKind, ValuesOf } from './mad/field.ts';
export * from './mad/ip-cm.ts';
export * from './mad/mad.ts';
export * from './mtu.ts';
export * from './network.ts';
export * from './opcodes.ts';
export * from './packet.ts';
export * from './port.ts';
export * from './psn.ts';
export * from './timers.ts';
