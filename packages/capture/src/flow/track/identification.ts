/**
 * Frames that a capture shows twice, recognized by the IPv4 Identification (RFC 6864): a mirror of two ports, or a
 * network that duplicates, repeats it; a sender that counts it up, as Linux and ConnectX do, gives a retransmitted packet
 * a new one. A constant Identification (node-roce and Huawei send 0) and IPv6, which has none, show nothing here.
 */
import type { RocePacket } from '../../read/packet.ts';

/**
 * The order of a request packet by its Identification: nothing; it was sent after all that were seen; before some of them, but
 * after its PSN or a later one had been; before some of them and for the first time: it was overtaken.
 */
export const IdOrder = { UNKNOWN: 0, NEWER: 1, OLDER: 2, LATE: 3 } as const;

/** Half as many PSNs back a repetition is found at least, of requests and of responses. */
const PLACES = 128;
/** Packets of a place: a responder acknowledges each duplicate of a burst with the same PSN. */
const WAYS = 4;
/** Words of a packet: Identification plus 1 (0: free), PSN with opcode, time. */
const WORDS = 3;
/** Fewer packets than this are too few to estimate how often Identifications go back. */
const FEW = 64;
/** Requests back that an overtaken one is compared with. */
const REQUESTS = 256;
/**
 * A packet may be overtaken for so long in any case; and, where few Identifications are used, until so many may have been: half of
 * all that could be distinguished, with a reserve for bursts. More than a second is no delay of a network.
 */
const LATEST = 5e6;
const MAX_LATEST = 1e9;
const USED = 8192;
/** Identifications back that a reordered packet is, as a rule. */
const NEAR = 1024;
/** Identifications come round in 65,536 packets: what is longer ago is another packet. */
const MAX_LAG = 100e6;

/** The packets of a place, newest first, and which place it is. */
const SEEN_WORDS = 16;
const SPOT = WAYS * WORDS;
/** Identification, past the PSNs, time, and 1 if it was a retransmission: a power of two. */
const SENT_WORDS = 4;
const NOTHING = new Float64Array(0);

/** The IPv4 Identifications of one direction: finds repeated frames and the order of packets. */
export class Identifications {
  /** Places by PSN, of requests and responses. */
  #seen = NOTHING;
  /** A ring of the last requests: Identification, past their PSNs, and time. */
  #sent = NOTHING;
  #sentCount = 0;
  #last = -1;
  #lastKey = -1;
  #newest = -1;
  #newestTime = 0;
  /** Past the PSNs of the request packet that was sent last, of those seen; unwrapped, −1: not known. */
  #lastEnd = -1;
  /**
   * The packet that `order` was asked of last goes on where the one sent before it stopped: in the order of Identifications, PSNs do
   * not go back with it.
   */
  followsOn = false;
  /** Identifications that were used since the first packet, and when that was. */
  #used = 0;
  #firstTime = 0;
  /** When the packet that `order` was asked of last had been sent by: an Identification after its own was seen then. */
  sentBy = 0;
  #packets = 0;
  #useless = 0;
  #backward = 0;

  /** Whether the sender gives each packet an Identification of its own. */
  get areDistinct(): boolean {
    return this.#packets > 0 && this.#useless * 50 <= this.#packets;
  }

  /** Remembers a packet. @returns whether it was seen a moment ago */
  noteSeen({ ipId, psn, opcode, time, info }: RocePacket): boolean {
    if (ipId < 0) return false;
    if (this.#packets * 2 * SEEN_WORDS >= this.#seen.length) this.#widen();
    const seen = this.#seen;
    // The PSNs of a burst follow one another; its Identifications, which other queue pairs share, need not.
    const spot = (psn << 1) | (info.isRequest ? 1 : 0);
    const place = (spot * SEEN_WORDS) & (seen.length - 1);
    const key = ((psn << 8) | opcode) >>> 0;
    for (let at = place; at < place + SPOT; at += WORDS) {
      const isSame = seen[at] === ipId + 1 && seen[at + 1] === key && time - seen[at + 2] < MAX_LAG;
      if (isSame && this.areDistinct) return true;
    }
    this.#packets++;
    if (ipId === 0 || (ipId === this.#last && key !== this.#lastKey)) this.#useless++;
    this.#last = ipId;
    this.#lastKey = key;
    // Earlier entries stay: a retransmission does not hide a copy of the first transmission.
    seen.copyWithin(place + WORDS, place, place + SPOT - WORDS);
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
  sent({ ipId, time }: RocePacket, end: number, again: boolean): void {
    // 0 is the constant of senders that do not count; IPv6 has no Identification.
    if (ipId <= 0) return;
    if (ipId === this.#newest) this.#lastEnd = end;
    if (this.#sentCount * SENT_WORDS >= this.#sent.length && this.#sentCount < REQUESTS) {
      const sent = new Float64Array(Math.max(4 * SENT_WORDS, 2 * this.#sent.length));
      sent.set(this.#sent);
      this.#sent = sent;
    }
    const place = (this.#sentCount++ * SENT_WORDS) & (this.#sent.length - 1);
    this.#sent[place] = ipId;
    this.#sent[place + 1] = end;
    this.#sent[place + 2] = time;
    this.#sent[place + 3] = again ? 1 : 0;
  }

  /** One of `IdOrder`, of a request packet with this PSN, unwrapped. */
  order({ ipId, time }: RocePacket, psn: number): number {
    this.sentBy = time;
    this.followsOn = false;
    if (ipId < 0 || !this.areDistinct) return IdOrder.UNKNOWN;
    // After a silence the host may have used half of all Identifications for others.
    if (this.#newest < 0 || isAfter(ipId, this.#newest) || time - this.#newestTime > this.#latest(time)) {
      if (this.#newest < 0) this.#firstTime = time;
      else this.#used += (ipId - this.#newest) & 0xffff;
      // Packets with the Identifications between have not come, or are of other queue pairs.
      const between = ((ipId - this.#newest) & 0xffff) - 1;
      this.followsOn = this.#lastEnd >= 0 && (psn === this.#lastEnd || psn === this.#lastEnd + between);
      this.#newest = ipId;
      this.#newestTime = time;
      return IdOrder.NEWER;
    }
    // Random ones go back half of the time, and far; what a network reorders is near.
    if (((this.#newest - ipId) & 0xffff) > NEAR) this.#backward++;
    if (this.#backward * 8 > this.#packets + FEW) return IdOrder.UNKNOWN;
    const known = Math.min(this.#sentCount, REQUESTS);
    let order: number = IdOrder.LATE;
    // How far the nearest before and after it are, and past the PSNs of these where they were retransmissions.
    let [before, after] = [0x10000, 0x10000];
    let [beforeEnd, afterEnd] = [-1, -1];
    for (let at = 0; at < known * SENT_WORDS; at += SENT_WORDS) {
      const end = this.#sent[at + 1];
      const againEnd = this.#sent[at + 3] === 1 ? end : -1;
      if (isAfter(ipId, this.#sent[at])) {
        if (end > psn) order = IdOrder.OLDER;
        const distance = (ipId - this.#sent[at]) & 0xffff;
        if (distance < before) [before, beforeEnd] = [distance, againEnd];
        continue;
      }
      const distance = (this.#sent[at] - ipId) & 0xffff;
      if (distance < after) [after, afterEnd] = [distance, againEnd];
      if (this.#sent[at + 2] < this.sentBy) this.sentBy = this.#sent[at + 2];
    }
    this.followsOn = (beforeEnd >= 0 && beforeEnd <= psn) || afterEnd > psn + 1;
    return order;
  }

  /** For how long a packet may have been overtaken. */
  #latest(time: number): number {
    const elapsed = Math.max(1, time - this.#firstTime);
    return Math.max(LATEST, Math.min(MAX_LATEST, (USED * elapsed) / Math.max(1, this.#used)));
  }
}

/** Within half of the 65,536. */
const isAfter = (ipId: number, other: number): boolean => ((ipId - other) << 16) >> 16 > 0;
