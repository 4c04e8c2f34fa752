/**
 * Networks by number: addresses mean the same host only within one VLAN and one tunnel. Packets name theirs with a small
 * integer, so that flows of two tenants with the same addresses stay apart.
 */
import { TUNNELS, type Tunnel } from './tunnel.ts';

/** Distinct networks; later ones share the last number. */
const MAX_NETWORKS = 4096;

const VLANS = 2 ** 12;

/** Numbers networks in the order in which they are seen; number 0 has neither tag nor tunnel. */
export class NetworkTable {
  readonly #numbers = new Map<number, number>([[0, 0]]);
  #lastKey = 0;
  #last = 0;

  /**
   * @param vlan −1 or 0 (a tag for its priority only): none
   * @param vni −1: none
   */
  number(vlan: number, tunnel: Tunnel, vni: number): number {
    if (vlan <= 0 && tunnel === 'none') return 0;
    // Labels of MPLS, sessions of ERSPAN and paths of NSH differ between the directions of a connection.
    const id = tunnel === 'mpls' || tunnel === 'erspan' || tunnel === 'nsh' ? -1 : vni;
    // 32 bits of a GRE key, 4 of the tunnel and 12 of the VLAN: an exact integer.
    const key = ((id + 1) * TUNNELS.length + TUNNELS.indexOf(tunnel)) * VLANS + Math.max(vlan, 0);
    if (key === this.#lastKey) return this.#last;
    let number = this.#numbers.get(key);
    if (number === undefined) {
      number = Math.min(this.#numbers.size, MAX_NETWORKS - 1);
      if (this.#numbers.size < MAX_NETWORKS) this.#numbers.set(key, number);
    }
    this.#lastKey = key;
    this.#last = number;
    return number;
  }
}
