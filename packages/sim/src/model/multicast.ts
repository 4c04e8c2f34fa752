/** Multicast groups of a port and the queue pairs attached to them (IBTA vol 1 §10.5, §9.6.1). */
import { gidToText, isMulticast } from '@node-roce/wire/rules';

/** The QPN of every multicast packet (§9.2.5). */
export const MULTICAST_QPN = 0xff_ffff;

/** Multicast groups of a model's device (IBTA vol 1 §10.5). */
export class ModelGroups {
  readonly #members = new Map<string, Set<number>>();

  /** ibv_attach_mcast(3): a queue pair is attached to a group once, however often it asks. */
  attach(gid: Uint8Array, qpn: number): void {
    const members = this.#members.get(gidToText(gid)) ?? new Set();
    this.#members.set(gidToText(gid), members.add(qpn));
  }

  detach(gid: Uint8Array, qpn: number): void {
    this.#members.get(gidToText(gid))?.delete(qpn);
  }

  /**
   * The receivers of a packet: on a group's address, with QPN 0xffffff, each queue pair attached (a copy for each, §10.5.2);
   * on our own address the one it names. The two do not mix (§9.6.1.2).
   */
  addressees(destination: Uint8Array, destQpn: number): number[] {
    const group = isMulticast(destination);
    if (group !== (destQpn === MULTICAST_QPN)) return [];
    return group ? [...(this.#members.get(gidToText(destination)) ?? [])] : [destQpn];
  }
}
