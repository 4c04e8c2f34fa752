/** Anonymized network addresses that keep the facts an analysis needs: who is who, and who is in one subnet. */
import { createHmac, randomBytes } from 'node:crypto';
import { formatIpAddress, formatMac, fromHex, isIpv4Mapped, parseIpAddress } from '@node-roce/wire';

/**
 * Ranges whose addresses stay inside: they show the purpose of an address, not its owner (RFC 1918, 3927,
 * 4193, 4291, 5771, 6598).
 */
const KEPT = [
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.168.0.0/16',
  '224.0.0.0/4',
  '::/96',
  'fc00::/7',
  'fe80::/64',
  'ff00::/16',
  'ff02::/16',
  'ff05::/16',
  'ff0e::/16',
].map((range) => {
  const [address = '', length] = range.split('/');
  return { bytes: parseIpAddress(address)!, length: Number(length) };
});

/** Anonymized addresses that are cached; others are computed anew. */
const MAX_KNOWN = 100_000;
const MAPPED = 12;
const MAC = /^([0-9a-f]{2}:){5}[0-9a-f]{2}$/i;

/**
 * Maps addresses one to one. Two that share their first n bits give addresses that share just n bits (the
 * construction of Crypto-PAn, with HMAC-SHA-256 for its cipher), so subnets stay subnets; private, link-local,
 * multicast and loopback ranges map to themselves. An IPv4 address and its GID agree. The same key gives the same
 * addresses, so that captures of two ends can be matched.
 */
export class Anonymizer {
  readonly #key: Uint8Array | string;
  readonly #known = new Map<string, Uint8Array>();

  /** @param key its holder can find out addresses by trying them; random unless given */
  constructor(key: Uint8Array | string = randomBytes(32)) {
    this.#key = key;
  }

  /** Anonymizes 4 bytes of IPv4, or 16 of IPv6 or a GID; the result is not to be written to. Others come back as they are. */
  address(bytes: Uint8Array): Uint8Array {
    if (bytes.length !== 4 && bytes.length !== 16) return bytes;
    return this.#remembered(bytes, () => {
      if (bytes.length === 4) return this.#map(bytes);
      if (!isIpv4Mapped(bytes)) return this.#map(bytes);
      const made = bytes.slice();
      made.set(this.address(bytes.subarray(MAPPED)), MAPPED);
      return made;
    });
  }

  /** Anonymizes a numeric address. */
  text(address: string): string {
    const bytes = parseIpAddress(address);
    return bytes === undefined ? address : formatIpAddress(this.address(bytes));
  }

  /** Anonymizes all IP and MAC addresses in a text. */
  sentence(text: string): string {
    return text.replaceAll(/[0-9a-f.:]+/gi, (word) => this.#word(word));
  }

  /** An address, perhaps with punctuation behind it; `2001:db8::` ends with some itself. */
  #word(word: string): string {
    for (let end = word.length; end > 0; end--) {
      const address = word.slice(0, end);
      if (MAC.test(address))
        return formatMac(this.mac(fromHex(address.replaceAll(':', '')))) + word.slice(end);
      const renamed = this.text(address);
      if (renamed !== address || !/[.:]$/.test(address)) return renamed + word.slice(end);
    }
    return word;
  }

  /** Anonymizes 6 bytes of MAC address: a locally administered one. Groups, and zeros, stay as they are. */
  mac(bytes: Uint8Array): Uint8Array {
    if ((bytes[0] & 1) === 1 || bytes.every((byte) => byte === 0)) return bytes;
    return this.#remembered(bytes, () => {
      const made = this.#digest('mac', bytes).slice(0, bytes.length);
      made[0] = (made[0] & 0xfc) | 2;
      return made;
    });
  }

  /** For other identifiers, of up to 32 bytes: the same length. */
  identifier(bytes: Uint8Array): Uint8Array {
    if (bytes.every((byte) => byte === 0)) return bytes;
    return this.#digest('identifier', bytes).subarray(0, bytes.length);
  }

  #remembered(bytes: Uint8Array, make: () => Uint8Array): Uint8Array {
    const name = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1');
    let made = this.#known.get(name);
    if (made === undefined) {
      made = make();
      if (this.#known.size < MAX_KNOWN) this.#known.set(name, made);
    }
    return made;
  }

  /** Each bit flips or not depending on the bits before it. */
  #map(address: Uint8Array): Uint8Array {
    const made = address.slice();
    const before = new Uint8Array(address.length + 1);
    const ranges = KEPT.filter(({ bytes }) => bytes.length === address.length);
    for (let bit = 0; bit < address.length * 8; bit++) {
      const at = bit >> 3;
      const mask = 0x80 >> (bit & 7);
      if (!ranges.some(({ bytes, length }) => bit < length && sharesBits(bytes, address, bit))) {
        before[address.length] = bit;
        if ((this.#digest('address', before)[0] & 1) === 1) made[at] ^= mask;
      }
      before[at] |= address[at] & mask;
    }
    return made;
  }

  #digest(what: string, bytes: Uint8Array): Uint8Array {
    return new Uint8Array(createHmac('sha256', this.#key).update(`${what}\0`).update(bytes).digest());
  }
}

function sharesBits(a: Uint8Array, b: Uint8Array, bits: number): boolean {
  for (let bit = 0; bit < bits; bit++) {
    const mask = 0x80 >> (bit & 7);
    if (((a[bit >> 3] ^ b[bit >> 3]) & mask) !== 0) return false;
  }
  return true;
}
