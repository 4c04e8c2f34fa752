/**
 * Frames that a capture shows twice, recognized by the IPv4 Identification (RFC 6864): a mirror of two ports, or a
 * network that duplicates, repeats it; a sender that counts it up, as Linux and ConnectX do, gives a packet that
 * it sends again a new one. Senders with a constant one (node-roce and Huawei have 0) and IPv6 tell nothing here.
 */
import type { RocePacket } from '../read/packet.ts';

/**
 * The order of a request packet by its Identification: nothing; it was sent after all that were seen; before some of them, but
 * after its PSN or a later one had been; before some of them and for the first time: it was overtaken.
 */
export const IdOrder = { UNKNOWN: 0, NEWER: 1, OLDER: 2, LATE: 3 } as const;

/** Half as many PSNs back a repetition is found, of requests and of responses. */
const PLACES = 256;
/** So many packets say nothing yet of how often Identifications go back. */
const FEW = 64;
/** Requests back that an overtaken one is compared with. */
const REQUESTS = 256;
/** No packet is overtaken for longer than this. */
const LATEST = 5e6;
/** Identifications come round in 65,536 packets: what is longer ago is another packet. */
const MAX_LAG = 100e6;

/** Two packets, three words each, and which place it is. */
const SEEN_WORDS = 8;
const SPOT = 6;
const NOTHING = new Float64Array(0);

/** The IPv4 Identifications of one direction: finds repeated frames and the order of packets. */
export class Identifications {
  /** Places by PSN, requests beside responses, for two packets: Identification plus 1 (0: free), PSN with opcode, time. */
  #seen = NOTHING;
  /** A ring of the last requests: Identification, and past their PSNs. */
  #sent = NOTHING;
  #sentCount = 0;
  #last = -1;
  #lastKey = -1;
  #newest = -1;
  #newestTime = 0;
  #packets = 0;
  #useless = 0;
  #backward = 0;

  /** Whether the sender gives each packet an Identification of its own. */
  get #counts(): boolean {
    return this.#packets > 0 && this.#useless * 50 <= this.#packets;
  }

  /** Whether this packet was seen a moment ago; remembers it. */
  isRepeated({ ipId, psn, opcode, time, info }: RocePacket): boolean {
    if (ipId < 0) return false;
    if (this.#packets * 2 * SEEN_WORDS >= this.#seen.length) this.#widen();
    const seen = this.#seen;
    // The PSNs of a burst follow one another; its Identifications, which other queue pairs share, need not.
    const spot = (psn << 1) | (info.isRequest ? 1 : 0);
    const place = (spot * SEEN_WORDS) & (seen.length - 1);
    const key = ((psn << 8) | opcode) >>> 0;
    const isSame = (at: number) =>
      seen[at] === ipId + 1 && seen[at + 1] === key && time - seen[at + 2] < MAX_LAG;
    if ((isSame(place) || isSame(place + 3)) && this.#counts) return true;
    this.#packets++;
    if (ipId === 0 || (ipId === this.#last && key !== this.#lastKey)) this.#useless++;
    this.#last = ipId;
    this.#lastKey = key;
    // The one before stays: what was sent again does not hide a copy of what was sent first.
    seen.copyWithin(place + 3, place, place + 3);
    seen[place] = ipId + 1;
    seen[place + 1] = key;
    seen[place + 2] = time;
    seen[place + SPOT] = spot;
    return false;
  }

  /** Busy directions get larger rings: most have a few packets, and there may be very many of them. */
  #widen(): void {
    const old = this.#seen;
    if (old.length >= PLACES * SEEN_WORDS) return;
    const seen = new Float64Array(Math.max(4 * SEEN_WORDS, 2 * old.length));
    for (let at = 0; at < old.length; at += SEEN_WORDS) {
      if (old[at] === 0) continue;
      seen.set(old.subarray(at, at + SEEN_WORDS), (old[at + SPOT] * SEEN_WORDS) & (seen.length - 1));
    }
    this.#seen = seen;
  }

  /** A request packet was seen; `end` is past its PSNs, unwrapped. */
  sent({ ipId }: RocePacket, end: number): void {
    // Identifications that tell nothing are not asked for.
    if (ipId <= 0) return;
    if (this.#sentCount * 2 === this.#sent.length && this.#sentCount < REQUESTS) {
      const sent = new Float64Array(Math.max(4, 2 * this.#sent.length));
      sent.set(this.#sent);
      this.#sent = sent;
    }
    const place = (this.#sentCount++ * 2) & (this.#sent.length - 1);
    this.#sent[place] = ipId;
    this.#sent[place + 1] = end;
  }

  /** One of `IdOrder`, of a request packet with this PSN, unwrapped. */
  order({ ipId, time }: RocePacket, psn: number): number {
    if (ipId < 0 || !this.#counts) return IdOrder.UNKNOWN;
    // After a silence the host may have used half of all Identifications for others.
    if (this.#newest < 0 || isAfter(ipId, this.#newest) || time - this.#newestTime > LATEST) {
      this.#newest = ipId;
      this.#newestTime = time;
      return IdOrder.NEWER;
    }
    this.#backward++;
    // Random ones go back half of the time; reordering is rarer.
    if (this.#backward * 8 > this.#packets + FEW) return IdOrder.UNKNOWN;
    const known = Math.min(this.#sentCount, REQUESTS);
    for (let i = 0; i < known; i++) {
      if (this.#sent[2 * i + 1] > psn && isAfter(ipId, this.#sent[2 * i])) return IdOrder.OLDER;
    }
    return IdOrder.LATE;
  }
}

/** Within half of the 65,536. */
const isAfter = (ipId: number, other: number): boolean => ((ipId - other) << 16) >> 16 > 0;
