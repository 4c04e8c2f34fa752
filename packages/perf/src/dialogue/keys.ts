/** The address of one queue pair (`struct pingpong_dest`): as text over TCP, as a structure over the connection manager. */
import { broken, quoted } from '../errors.ts';

export interface Key {
  lid: number;
  /** READs and atomics that it serves at once. */
  outReads: number;
  /** 24 bits. */
  qpn: number;
  /** First PSN that it sends. */
  psn: number;
  rkey: number;
  /** Where its receive half begins. */
  vaddr: bigint;
  gid: Uint8Array;
}

/** A form of the keys on the way. */
export interface KeyForm {
  readonly bytes: number;
  encode(key: Key): Buffer;
  /** @throws RoceError ERR_ROCE_EXCHANGE */
  decode(message: Uint8Array): Key;
}

const hex = (value: number | bigint, digits: number) => value.toString(16).padStart(digits, '0');
const TEXT =
  /^([0-9a-f]{4}):([0-9a-f]{4}):([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{8}):([0-9a-f]{16}):((?:[0-9a-f]{2}:){16})([0-9a-f]{8}):\0$/i;
const LARGEST_RD_ATOMIC = 255;

/** @throws RoceError ERR_ROCE_EXCHANGE for numbers that no queue pair has; the keys of a barrier may be all zeros */
export function checkKey(key: Key): Key {
  if (key.qpn === 0 || key.qpn > 0xff_ffff || key.psn > 0xff_ffff)
    throw broken(`the peer has queue pair ${key.qpn} and PSN ${key.psn}: expected 24 bits`);
  if (key.outReads < 1 || key.outReads > LARGEST_RD_ATOMIC)
    throw broken(`the peer has ${key.outReads} READs under way: expected 1 … ${LARGEST_RD_ATOMIC}`);
  return key;
}

/** `lid:out_reads:qpn:psn:rkey:vaddr:gid…:srqn:` in hexadecimal, and a zero byte. */
export const TEXT_KEYS: KeyForm = {
  bytes: 108,
  encode({ lid, outReads, qpn, psn, rkey, vaddr, gid }) {
    const route = [hex(lid, 4), hex(outReads, 4), hex(qpn, 6), hex(psn, 6), hex(rkey, 8), hex(vaddr, 16)];
    const bytes = [...gid].map((byte) => hex(byte, 2));
    return Buffer.from(`${[...route, ...bytes, hex(0, 8)].join(':')}:\0`, 'latin1');
  },
  decode(message) {
    const match = TEXT.exec(Buffer.from(message).toString('latin1'));
    if (match === null)
      throw broken(`the peer sent ${quoted(message)} in place of the address of a queue pair`);
    const [lid, outReads, qpn, psn, rkey] = match.slice(1, 6).map((text) => Number.parseInt(text, 16));
    const gid = new Uint8Array(Buffer.from(match[7].replaceAll(':', ''), 'hex'));
    return { lid, outReads, qpn, psn, rkey, vaddr: BigInt(`0x${match[6]}`), gid };
  },
};

/** The structure, with `tail_markers_vaddr` (64 bytes) from 6.29 on or without it (56 bytes). */
function structure(bytes: 56 | 64): KeyForm {
  const gidAt = bytes - 24;
  return {
    bytes,
    encode({ lid, outReads, qpn, psn, rkey, vaddr, gid }) {
      const message = Buffer.alloc(bytes);
      for (const [i, value] of [lid, outReads, qpn, psn, rkey].entries()) message.writeUInt32BE(value, 4 * i);
      message.writeBigUInt64BE(vaddr, 24);
      message.set(gid, gidAt);
      return message;
    },
    decode(message) {
      const view = Buffer.from(message);
      const [lid, outReads, qpn, psn, rkey] = [0, 4, 8, 12, 16].map((at) => view.readUInt32BE(at));
      const gid = new Uint8Array(view.subarray(gidAt, gidAt + 16));
      return { lid, outReads, qpn, psn, rkey, vaddr: view.readBigUInt64BE(24), gid };
    },
  };
}

/** Over the connection manager, below 6.29. */
export const SHORT_KEYS = structure(56);
/** Over the connection manager, from 6.29 on. */
export const LONG_KEYS = structure(64);
