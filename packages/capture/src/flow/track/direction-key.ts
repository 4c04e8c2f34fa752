/** The key of a direction: addresses, queue pair and network, with the parts of the network. */
import { LinkType } from '@node-roce/pcap';
import type { RocePacket } from '../../read/packet.ts';
import { macAt } from '../../read/pause.ts';
import type { Tunnel } from '../../read/tunnel.ts';

/** The key of a direction; it never changes. */
export class DirectionKey {
  readonly source: number;
  readonly destination: number;
  readonly destQp: number;
  /** Of datagrams, the sender's queue pair; −1 of all others. */
  readonly sourceQp: number;
  /** VLAN and tunnel by number: addresses mean the same host within them only. */
  readonly network: number;
  /** The parts of that. */
  readonly vni: number;
  readonly vlan: number;
  readonly tunnel: Tunnel;
  /** Source MAC address of the first packet, as a number; −1: none. */
  readonly mac: number;

  constructor(packet: RocePacket, sourceQp: number) {
    this.source = packet.source;
    this.destination = packet.destination;
    this.destQp = packet.destQp;
    this.sourceQp = sourceQp;
    this.network = packet.network;
    this.vni = packet.vni;
    this.vlan = packet.vlan;
    this.tunnel = packet.tunnel;
    this.mac = packet.linkType === LinkType.ETHERNET ? macAt(packet.bytes, packet.link + 6) : -1;
  }

  is(source: number, destination: number, destQp: number, sourceQp: number, network: number): boolean {
    return (
      this.destQp === destQp &&
      this.source === source &&
      this.destination === destination &&
      this.sourceQp === sourceQp &&
      this.network === network
    );
  }
}
