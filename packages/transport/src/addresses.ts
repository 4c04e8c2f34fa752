/**
 * Destinations of datagrams, and the receivers of multicast groups: address handles (ibv_create_ah(3)) and
 * multicast groups (ibv_attach_mcast(3)).
 */
import { sourcePortForUd, sourcePortFromFlowLabel } from '@node-roce/wire';
import type { AhAttr, DeviceLimits, GidEntry } from './control.ts';
import type { QpCounters } from './counters.ts';
import { invalid, RoceError } from './errors.ts';
import type { OpenBatches } from './open-batches.ts';
import type { Responder } from './responder/responder.ts';

/** The link's table of peers, as the engine uses it. */
export interface PeerTable {
  /** An index for a destination: 16-byte GID, index of the local GID, TTL or hop limit. */
  add(dgid: Uint8Array, sgidIndex: number, hopLimit: number): number;
  remove(peer: number): void;
  /**
   * Receives the packets to a multicast group, from now on, on the interface of a local GID. Absent where
   * the link can't.
   * @returns the index that `Rx.LOCAL` has for such packets; the same for the same group
   */
  join?(group: Uint8Array, sgidIndex: number): number;
  leave?(local: number): void;
}

/** An address vector that a datagram can be sent along. */
export class AddressHandle {
  readonly pd: number;
  readonly peer: number;
  readonly trafficClass: number;
  /** Bytes of the IP header of its packets. */
  readonly ipBytes: number;
  readonly #flowLabel: number;

  constructor(pd: number, peer: number, { grh }: AhAttr) {
    this.pd = pd;
    this.peer = peer;
    this.trafficClass = grh.trafficClass;
    this.ipBytes = ipBytesTo(grh.dgid);
    this.#flowLabel = grh.flowLabel;
  }

  /** Entropy of the flow: from its label, else from the sender's QPN. */
  sourcePort(qpn: number): number {
    return this.#flowLabel === 0 ? sourcePortForUd(qpn) : sourcePortFromFlowLabel(this.#flowLabel);
  }
}

/** A queue pair that receives the packets to a group. */
export interface GroupMember {
  readonly state: number;
  readonly counters: QpCounters;
  readonly responder: Responder;
}

interface Group {
  readonly local: number;
  readonly gid: Uint8Array;
  readonly members: GroupMember[];
}

/** Address handles, peers and multicast groups of an adapter. */
export class Addresses {
  /** The queue pairs that receive the packets to a group, by its local index, which are few and small; looked at with each packet. */
  readonly groups: readonly (readonly GroupMember[] | undefined)[] = [];
  readonly #peers: PeerTable;
  readonly #limits: DeviceLimits;
  readonly #handles = new Map<number, AddressHandle>();
  readonly #groups = new Map<string, Group>();
  readonly #batches: OpenBatches<object>;
  #next = 1;

  /** @param batches whose packets may name peers */
  constructor(peers: PeerTable, limits: DeviceLimits, batches: OpenBatches<object>) {
    this.#peers = peers;
    this.#limits = limits;
    this.#batches = batches;
  }

  /** A destination for a route, which is checked. */
  addPeer({ grh }: AhAttr): number {
    // 0 means "this subnet", as 1 does; an IP packet has a hop left when it is sent.
    return this.#peers.add(grh.dgid, grh.sgidIndex, Math.max(1, grh.hopLimit));
  }

  /** Gives a destination back. Packets that wait for the link still go to it and to no other. */
  removePeer(peer: number): void {
    this.#batches.afterPackets(() => this.#peers.remove(peer));
  }

  /** ibv_create_ah(3); the attributes are checked. */
  createAh(pd: number, attr: AhAttr): number {
    if (this.#handles.size >= this.#limits.maxAh) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no address handle left', { errno: 'ENOMEM' });
    }
    const handle = this.#next++;
    this.#handles.set(handle, new AddressHandle(pd, this.addPeer(attr), attr));
    return handle;
  }

  /** ibv_destroy_ah(3). @returns its PD */
  destroyAh(handle: number): number {
    const ah = this.#handles.get(handle);
    if (!ah) throw invalid('ah', 'no such address handle');
    this.#handles.delete(handle);
    this.removePeer(ah.peer);
    return ah.pd;
  }

  ah(handle: number): AddressHandle | undefined {
    return this.#handles.get(handle);
  }

  /** ibv_attach_mcast(3): the queue pair takes what is sent to the group. */
  attach(qp: GroupMember, group: Uint8Array, sgidIndex: number): void {
    if (!this.#peers.join) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', 'the link does not take part in multicast groups', {
        errno: 'EOPNOTSUPP',
        expected: "the native addon (link: 'udp')",
      });
    }
    const name = groupName(group);
    let entry = this.#groups.get(name);
    if (entry?.members.includes(qp)) return;
    if (entry ? entry.members.length >= this.#limits.maxMcastQpAttach : this.#full()) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no room to attach', { errno: 'ENOMEM' });
    }
    if (!entry) {
      entry = { local: this.#peers.join(group, sgidIndex), gid: group.slice(), members: [] };
      this.#groups.set(name, entry);
      this.#receive(entry.local, entry.members);
    }
    entry.members.push(qp);
  }

  /** ibv_detach_mcast(3). False if the queue pair was not attached. */
  detach(qp: GroupMember, group: Uint8Array): boolean {
    const name = groupName(group);
    const entry = this.#groups.get(name);
    const at = entry ? entry.members.indexOf(qp) : -1;
    if (!entry || at < 0) return false;
    entry.members.splice(at, 1);
    if (entry.members.length > 0) return true;
    this.#groups.delete(name);
    this.#receive(entry.local, undefined);
    this.#peers.leave?.(entry.local);
    return true;
  }

  #receive(local: number, members: readonly GroupMember[] | undefined): void {
    (this.groups as (readonly GroupMember[] | undefined)[])[local] = members;
  }

  /** Whether the queue pair is attached to any group: then it can't be destroyed. */
  isAttached(qp: Pick<GroupMember, 'state'>): boolean {
    for (const { members } of this.#groups.values()) if (members.some((member) => member === qp)) return true;
    return false;
  }

  /** The address of the group at a local index. */
  groupGid(local: number): Uint8Array | undefined {
    for (const group of this.#groups.values()) if (group.local === local) return group.gid;
    return undefined;
  }

  #full(): boolean {
    return this.#groups.size >= this.#limits.maxMcastGrp;
  }
}

/** A route that packets can take; ERR_ROCE_INVALID_ATTRIBUTE names the wrong part. */
export function checkAddressVector(attr: AhAttr, gids: readonly GidEntry[], name = 'ahAttr'): void {
  const { grh } = attr;
  if (!attr.isGlobal || !grh) throw invalid(`${name}.isGlobal`, 'RoCE has no route without a GRH', 'true');
  if (!(grh.dgid instanceof Uint8Array) || grh.dgid.length !== 16) {
    throw invalid(`${name}.grh.dgid`, 'not a GID', '16 bytes');
  }
  if (grh.dgid.every((byte) => byte === 0)) throw invalid(`${name}.grh.dgid`, 'the zero GID names nobody');
  const ranges: [string, number, number][] = [
    ['grh.sgidIndex', grh.sgidIndex, gids.length - 1],
    ['grh.flowLabel', grh.flowLabel, 0xf_ffff],
    ['grh.hopLimit', grh.hopLimit, 255],
    ['grh.trafficClass', grh.trafficClass, 255],
    ['sl', attr.sl, 15],
    // Kept and given back by a query, without effect on RoCE; the widths are those of struct ibv_ah_attr.
    ['dlid', attr.dlid, 0xffff],
    ['srcPathBits', attr.srcPathBits, 255],
    ['staticRate', attr.staticRate, 255],
  ];
  for (const [field, value, high] of ranges) {
    if (!Number.isInteger(value) || value < 0 || value > high) {
      throw invalid(`${name}.${field}`, `${value} is out of range`, `0 … ${high}`);
    }
  }
  if (attr.portNum !== 1) throw invalid(`${name}.portNum`, `no port ${attr.portNum}`, '1');
  if (isEmptyGid(gids[grh.sgidIndex])) {
    throw invalid(`${name}.grh.sgidIndex`, `there is no GID at index ${grh.sgidIndex}`);
  }
  if (isIpv4(grh.dgid) !== isIpv4(gids[grh.sgidIndex].gid)) {
    throw invalid(`${name}.grh.sgidIndex`, 'source and destination GID are of different IP versions');
  }
}

function groupName(gid: Uint8Array): string {
  return gid.join('.');
}

/** Whether no address has this place in the table of GIDs. */
export function isEmptyGid({ gid }: GidEntry): boolean {
  return gid.every((byte) => byte === 0);
}

/** `::ffff:a.b.c.d`. */
export function isIpv4(gid: Uint8Array): boolean {
  return gid.subarray(0, 10).every((byte) => byte === 0) && gid[10] === 0xff && gid[11] === 0xff;
}

/** Bytes of the IP header, without options, of packets to a GID. */
export function ipBytesTo(gid: Uint8Array): number {
  return isIpv4(gid) ? 20 : 40;
}

/** The GID of a multicast group: `ff00::/8`, or `::ffff:224.0.0.0/4`. */
export function isMulticastGid(gid: Uint8Array): boolean {
  if (gid[0] === 0xff) return true;
  for (let i = 0; i < 10; i++) if (gid[i] !== 0) return false;
  return gid[10] === 0xff && gid[11] === 0xff && gid[12] >> 4 === 14;
}
