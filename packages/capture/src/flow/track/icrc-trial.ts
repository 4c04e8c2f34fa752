/**
 * Why no ICRC of a sender is right: each packet's is compared with what mistakes would make of it. A change of the headers on the
 * way (NAT) is found as well: a CRC is linear, so the wrong value gives the bytes that one field had before.
 */
import {
  crc32Finish,
  crc32Shift,
  crc32Update,
  icrcFinish,
  icrcGrh,
  icrcIpUdp,
  readIcrc,
} from '@node-roce/wire';
import type { RocePacket } from '../../read/packet.ts';

/** Mistakes in an ICRC; the words follow "The ICRC". */
const MISTAKES = {
  zero: 'is 0',
  swapped: 'is in the wrong byte order',
  inverted: 'lacks the final inversion',
  'without-ones': 'is computed without the eight bytes of ones in front',
  unmasked: 'is computed over fields that have to be masked (TTL, checksums, traffic class)',
  'plain-crc': 'is a plain CRC-32 of the IP packet',
  'from-bth': 'is computed over the BTH and the payload, without the IP and UDP headers',
} as const;

export type IcrcMistake = keyof typeof MISTAKES;

/** Packets that are tried, of each direction. */
const MAX_TRIALS = 16;
const START = 0xffff_ffff;
const ONES = new Uint8Array(8).fill(0xff);

/** The fields that may have been changed on the way: offsets of four bytes in an IPv4 header. */
const FIELDS = { source: 12, destination: 16, identification: 4 } as const;
type Field = keyof typeof FIELDS;

export interface RewrittenField {
  field: Field;
  /** Of addresses: the one that the ICRC was computed with. */
  original: string;
}

/** Tries explanations for the packets of one direction; those that fit all of them stay. */
export class IcrcTrial {
  trials = 0;
  readonly #mistakes = new Set<IcrcMistake>(Object.keys(MISTAKES) as IcrcMistake[]);
  /** By field, the value that the ICRC was computed with; undefined: not the same in all packets. */
  readonly #fields = new Map<Field, number | undefined>();
  readonly #lengths = new Set<number>();
  /** Differences between the right and the wrong value, by length. */
  readonly #differences = new Map<number, number>();
  #constant = 0;
  #varying = 0;

  /** Tries one packet with a wrong ICRC. */
  try(packet: RocePacket): void {
    if (this.trials === MAX_TRIALS) return;
    const { bytes, ip, bth, end, version } = packet;
    const at = end - 4;
    if (version === 0) this.#tryNative(readIcrc(bytes, at));
    if (at <= bth + 12 || version === 0) return;
    this.trials++;
    const wrong = readIcrc(bytes, at);
    const right = valuesOf(packet, version, at);
    for (const mistake of this.#mistakes) if (!right[mistake].includes(wrong)) this.#mistakes.delete(mistake);
    const difference = (right.value ^ wrong) >>> 0;
    const known = this.#differences.get(end - ip);
    if (known === undefined) this.#differences.set(end - ip, difference);
    else if (known === difference) this.#constant++;
    else this.#varying++;
    if (version === 2 && bytes[ip] >> 4 === 4) this.#tryFields(packet, difference, at);
  }

  /** The other mistakes are those of Ethernet's adapters; native InfiniBand has another ICRC. */
  #tryNative(wrong: number): void {
    this.trials++;
    for (const mistake of this.#mistakes)
      if (mistake !== 'zero' || wrong !== 0) this.#mistakes.delete(mistake);
  }

  /** The mistake that explains all packets; undefined: none does. */
  get mistake(): IcrcMistake | undefined {
    return this.trials === 0 ? undefined : [...this.#mistakes][0];
  }

  /** The one header field that was changed on the way; undefined: none explains all packets. */
  get rewritten(): RewrittenField | undefined {
    // With packets of one length any field could be the one.
    if (this.#lengths.size < 2) return undefined;
    for (const [field, value] of this.#fields)
      if (value !== undefined) return { field, original: field === 'identification' ? '' : dotted(value) };
    return undefined;
  }

  /** Packets of one length are wrong by the same difference: the same fields of all headers were changed. */
  get isConstant(): boolean {
    return this.#constant > 0 && this.#varying === 0;
  }

  #tryFields({ bytes, ip, end }: RocePacket, difference: number, at: number): void {
    this.#lengths.add(end - ip);
    for (const [field, offset] of Object.entries(FIELDS) as [Field, number][]) {
      const delta = crc32Shift(difference, -(at - (ip + offset)));
      let value = 0;
      for (let i = 0; i < 4; i++)
        value = (value * 256 + (bytes[ip + offset + i] ^ ((delta >>> (8 * i)) & 0xff))) >>> 0;
      // Only the Identification's own two bytes may differ, and each packet has another one.
      const found = field !== 'identification' ? value : delta >>> 16 === 0 ? 0 : undefined;
      const known = this.#fields.get(field);
      const isFirst = !this.#fields.has(field);
      this.#fields.set(field, isFirst || known === found ? found : undefined);
    }
  }
}

/** The words for a mistake, behind "The ICRC". */
export const mistakeText = (mistake: IcrcMistake): string => MISTAKES[mistake];

type Values = Record<IcrcMistake, number[]> & { value: number };

/** The right ICRC, and what each mistake makes of it; of the ways to compute it wrongly in both byte orders. */
function valuesOf({ bytes, ip, bth }: RocePacket, version: 1 | 2, at: number): Values {
  const masked = version === 1 ? icrcGrh(bytes, ip) : icrcIpUdp(bytes, ip);
  const rest = (register: number, from: number) => crc32Update(register, bytes, from, at);
  const head = new Uint8Array(5);
  head.set(bytes.subarray(bth, bth + 5));
  head[4] = 0xff;
  const value = icrcFinish(rest(crc32Update(masked, head, 0, 5), bth + 5));
  const plain = (register: number, from: number) => crc32Finish(rest(register, from));
  const both = (one: number) => [one >>> 0, swap(one)];
  const ones = crc32Update(START, ONES, 0, 8);
  const copy = maskedCopy(bytes, ip, bth, at, version);
  const withoutOnes = crc32Finish(crc32Update(START, copy, 0, copy.length));
  return {
    value,
    zero: [0],
    swapped: [swap(value)],
    inverted: both(~value),
    'without-ones': both(withoutOnes),
    unmasked: both(plain(ones, ip)),
    'plain-crc': both(plain(START, ip)),
    'from-bth': [
      ...both(plain(START, bth)),
      ...both(plain(ones, bth)),
      ...both(crc32Finish(rest(crc32Update(START, head, 0, 5), bth + 5))),
      ...both(crc32Finish(rest(crc32Update(ones, head, 0, 5), bth + 5))),
    ],
  };
}

/** The bytes that an ICRC covers, with ones in the masked places, without the eight in front. */
function maskedCopy(bytes: Uint8Array, ip: number, bth: number, at: number, version: 1 | 2): Uint8Array {
  const copy = bytes.slice(ip, at);
  const isIpv4 = copy[0] >> 4 === 4;
  const places = version === 2 && isIpv4 ? [1, 8, 10, 11] : [1, 2, 3, 7];
  for (const place of places) copy[place] = 0xff;
  if (!isIpv4) copy[0] |= 0x0f;
  const b = bth - ip;
  if (version === 2) copy[b - 2] = copy[b - 1] = 0xff;
  copy[b + 4] = 0xff;
  return copy;
}

const swap = (value: number): number =>
  (((value & 0xff) << 24) | ((value & 0xff00) << 8) | ((value >>> 8) & 0xff00) | (value >>> 24)) >>> 0;

const dotted = (value: number): string =>
  [value >>> 24, (value >>> 16) & 0xff, (value >>> 8) & 0xff, value & 0xff].join('.');
