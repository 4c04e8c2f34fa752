export * from './interfaces.ts';
export type { Link } from './link.ts';
export { gatherSlot, MemoryLink, MemoryNetwork } from './memory.ts';
export { describePortOwner } from './port-owner.ts';
export { TracerLink } from './tracer.ts';
export { UdpLink, type UdpLinkOptions } from './udp.ts';
