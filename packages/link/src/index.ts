export { explainDescriptors } from './descriptors.ts';
export type { FaultOptions } from './fault-path.ts';
export { FaultLink } from './faults.ts';
export { checkFaults, type Faults, Impairment, type PacketHandling } from './impairment.ts';
export {
  activeMtuOf,
  type InterfaceAddress,
  interfaceByAddress,
  interfaceByName,
  listInterfaces,
  type NetworkInterface,
} from './interfaces.ts';
export { capabilities, readText } from './kernel-files.ts';
export type { Link, LinkSharing } from './link.ts';
export { MemoryLink, MemoryNetwork } from './memory.ts';
export {
  LINK_KINDS,
  openSocketLink,
  openUdpLink,
  type SocketLinkKind,
  type SocketLinkOptions,
} from './open-sockets.ts';
// The classes themselves are behind `openUdpLink`, so that this package works without the addon.
export type { FlushIcrc, PortLink, PortLinkOptions } from './port-link.ts';
export { describePortOwner } from './port-owner.ts';
export { TracerLink, traceError } from './tracer.ts';
export type { UdpLink, UdpLinkOptions } from './udp.ts';
export {
  type InterfaceEvent,
  type InterfaceWatch,
  type WatchOptions,
  watchInterface,
} from './watch-interface.ts';
export { LinkWrapper } from './wrapper.ts';
export { missingCapabilities, type XdpMode } from './xdp-support.ts';
