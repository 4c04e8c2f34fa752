/**
 * Frames that a capture shows twice, told by the IPv4 Identification (RFC 6864): a mirror of two ports, or a
 * network that duplicates, repeats it; a sender that counts it up, as Linux and ConnectX do, gives a packet that
 * it sends again a new one. Senders with a constant one (node-roce and Huawei have 0) and IPv6 tell nothing here.
 */
import type { RocePacket } from '../read/packet.ts';

/**
 * What the Identification of a request packet says: nothing; it was sent after all that were seen; before some of them, but
 * after its PSN or a later one had been; before some of them and for the first time: it was overtaken.
 */
export const IdOrder = { UNKNOWN: 0, NEWER: 1, OLDER: 2, LATE: 3 } as const;

/** Packets back that a repetition is found: those with the last so many Identifications. */
const PLACES = 256;
/** So many packets say nothing yet of how often Identifications go back. */
const FEW = 64;
/** Requests back that one which was overtaken is held against. */
const REQUESTS = 256;
/** Identifications come round in 65,536 packets: what is longer ago is another packet. */
const LONGEST_LAG = 100e6;

export class Identifications {
  readonly #ids = new Int32Array(PLACES).fill(-1);
  readonly #psns = new Int32Array(PLACES);
  readonly #times = new Float64Array(PLACES);
  readonly #sentIds = new Int32Array(REQUESTS);
  readonly #sentEnds = new Float64Array(REQUESTS);
  #sentCount = 0;
  #last = -1;
  #newest = -1;
  #packets = 0;
  #useless = 0;
  #backward = 0;

  /** Whether the sender gives each packet an Identification of its own. */
  get #counts(): boolean {
    return this.#packets > 0 && this.#useless * 50 <= this.#packets;
  }

  /** Whether this packet was seen a moment ago; remembers it. */
  isRepeated({ ipId, psn, opcode, time }: RocePacket): boolean {
    if (ipId < 0) return false;
    const place = ipId & (PLACES - 1);
    const key = (psn << 8) | opcode;
    const same =
      this.#ids[place] === ipId && this.#psns[place] === key && time - this.#times[place] < LONGEST_LAG;
    if (same && this.#counts) return true;
    this.#packets++;
    if (ipId === 0 || ipId === this.#last) this.#useless++;
    this.#last = ipId;
    this.#ids[place] = ipId;
    this.#psns[place] = key;
    this.#times[place] = time;
    return false;
  }

  /** A request packet was seen; `end` is past its PSNs, unwrapped. */
  sent({ ipId }: RocePacket, end: number): void {
    const place = this.#sentCount++ & (REQUESTS - 1);
    this.#sentIds[place] = ipId;
    this.#sentEnds[place] = end;
  }

  /** One of `IdOrder`, of a request packet with this PSN, unwrapped. */
  order({ ipId }: RocePacket, psn: number): number {
    if (ipId < 0 || !this.#counts) return IdOrder.UNKNOWN;
    if (this.#newest < 0 || isAfter(ipId, this.#newest)) {
      this.#newest = ipId;
      return IdOrder.NEWER;
    }
    this.#backward++;
    // Random ones go back half of the time; reordering is rarer.
    if (this.#backward * 8 > this.#packets + FEW) return IdOrder.UNKNOWN;
    const known = Math.min(this.#sentCount, REQUESTS);
    for (let i = 0; i < known; i++) {
      if (this.#sentEnds[i] > psn && isAfter(ipId, this.#sentIds[i])) return IdOrder.OLDER;
    }
    return IdOrder.LATE;
  }
}

/** Within half of the 65,536. */
const isAfter = (ipId: number, other: number): boolean => ((ipId - other) << 16) >> 16 > 0;
