/** The paths of a connection: what an address vector of a modify call makes of them (ibv_modify_qp(3)). */
import { ECN_MASK, sourcePortForConnection } from '@node-roce/wire';
import { type Addresses, ipBytesTo } from '../addresses.ts';
import type { AhAttr, QpAttr } from '../control.ts';
import type { AlternatePath, QpAttributes } from './attributes.ts';

/** ECN-capable transport (RFC 3168 §5). */
const ECT_0 = 2;

/** The part of a path that its address vector gives. */
type Route = Omit<AlternatePath, 'pkeyIndex' | 'portNum' | 'timeout'>;

/** Copies of an address vector and of its GID as words: queue pairs to one peer share them. */
interface Destination {
  readonly vector: AhAttr;
  readonly source: Uint32Array;
}

/** The members of an address vector, and of its route, but for the GID. */
const VECTOR = ['isGlobal', 'dlid', 'sl', 'srcPathBits', 'staticRate', 'portNum'] as const;
const ROUTE = ['flowLabel', 'sgidIndex', 'hopLimit', 'trafficClass'] as const;

/** The queue pair, as far as its paths depend on it. */
interface PathUser {
  readonly qpn: number;
  /** It reacts to congestion: its packets are ECN-capable. */
  readonly reacts: boolean;
  readonly attributes: QpAttributes;
}

/** Owns the last destination, which queue pairs to one peer share. */
export class Paths {
  readonly #addresses: Addresses;
  #lastDestination: Destination | undefined;

  constructor(addresses: Addresses) {
    this.#addresses = addresses;
  }

  /** The paths of a modify call; their peers are held, both or none. */
  of(qp: PathUser, attr: QpAttr): Partial<QpAttributes> {
    const path = this.#path(qp, attr.ahAttr, attr);
    try {
      return { ...path, ...this.#alternate(qp, attr) };
    } catch (error) {
      if (path) this.#addresses.removePeer(path.peer);
      throw error;
    }
  }

  /** Gives back the peers of paths that are not used after all, or any more. */
  drop({ peer = -1, alternate }: Partial<Pick<QpAttributes, 'peer' | 'alternate'>>): void {
    if (peer >= 0) this.#addresses.removePeer(peer);
    if (alternate) this.#addresses.removePeer(alternate.peer);
  }

  /** The alternate path of a modify call; its peer is held. */
  #alternate(qp: PathUser, attr: QpAttr): Partial<QpAttributes> {
    const route = this.#path(qp, attr.altAhAttr, attr);
    if (!route) return {};
    const { altPkeyIndex: pkeyIndex = 0, altPortNum: portNum = 1, altTimeout: timeout = 0 } = attr;
    return { alternate: { ...route, pkeyIndex, portNum, timeout } };
  }

  #destinationOf(ah: AhAttr): Destination {
    if (this.#lastDestination !== undefined && isSameVector(this.#lastDestination.vector, ah))
      return this.#lastDestination;
    const dgid = ah.grh.dgid.slice();
    const vector = { ...ah, grh: { ...ah.grh, dgid } };
    this.#lastDestination = { vector, source: new Uint32Array(dgid.buffer) };
    return this.#lastDestination;
  }

  /** The route of an address vector, to the peer QPN of a modify call; a new peer is held. */
  #path(qp: PathUser, ah: AhAttr | undefined, attr: QpAttr): Route | undefined {
    if (!ah) return undefined;
    const { grh } = ah;
    // They come together in the step to RTR; later the address vector may change alone.
    const destQpn = attr.destQpNum ?? qp.attributes.destQpn;
    const { vector, source } = this.#destinationOf(ah);
    return {
      peer: this.#addresses.addPeer(ah),
      local: grh.sgidIndex,
      trafficClass: grh.trafficClass,
      dataTrafficClass: qp.reacts ? (grh.trafficClass & ~ECN_MASK) | ECT_0 : grh.trafficClass,
      ah: vector,
      source,
      ipBytes: ipBytesTo(grh.dgid),
      sourcePort: sourcePortForConnection(grh.flowLabel, qp.qpn, destQpn),
    };
  }
}

function isSameVector(a: AhAttr, b: AhAttr): boolean {
  return (
    a.grh.dgid.every((byte, i) => byte === b.grh.dgid[i]) &&
    ROUTE.every((name) => a.grh[name] === b.grh[name]) &&
    VECTOR.every((name) => a[name] === b[name])
  );
}
