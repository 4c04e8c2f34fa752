// A reader of the recorder's own captures (pcap, little-endian, nanoseconds, Ethernet) and of the RoCE headers that the truth rests on.
// Own code on purpose: it shares nothing with the analysis that the truth judges.
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

const MAGIC = 0xa1b23c4d;
const ETHERTYPE_IP4 = 0x0800;
const ETHERTYPE_IP6 = 0x86dd;

/** The frames of a capture, plain or gzip: { number, ns, bytes }; `ns` is a bigint. */
export function readCapture(path) {
  const file = readFileSync(path);
  const bytes = file[0] === 0x1f ? gunzipSync(file) : file;
  if (bytes.readUInt32LE(0) !== MAGIC)
    throw new Error(`${path}: expected pcap of nanoseconds, little-endian`);
  const frames = [];
  for (let at = 24; at < bytes.length; ) {
    const ns = BigInt(bytes.readUInt32LE(at)) * 1_000_000_000n + BigInt(bytes.readUInt32LE(at + 4));
    const length = bytes.readUInt32LE(at + 8);
    frames.push({ number: frames.length + 1, ns, bytes: bytes.subarray(at + 16, at + 16 + length) });
    at += 16 + length;
  }
  return frames;
}

/** Low five bits of the opcode (IBTA vol 1 table 38). */
export const Op = {
  READ: 0x0c,
  READ_FIRST: 0x0d,
  READ_ONLY: 0x10,
  ACK: 0x11,
  ATOMIC_ACK: 0x12,
  CMP_SWAP: 0x13,
  FETCH_ADD: 0x14,
};

/**
 * The headers of a RoCE frame: { op, service, qp, psn, ackReq, syndrome?, msn?, dmaLength?, payload, attribute?, opcode }; undefined for
 * other frames. `attribute` is that of a CM datagram.
 */
export function parseRoce(f) {
  const type = f.readUInt16BE(12);
  const udp = type === ETHERTYPE_IP4 ? 14 + (f[14] & 15) * 4 : type === ETHERTYPE_IP6 ? 54 : 0;
  if (!udp || f.length < udp + 24 || f.readUInt16BE(udp + 2) !== 4791) return undefined;
  const bth = udp + 8;
  const end = udp + f.readUInt16BE(udp + 4) - 4;
  const opcode = f[bth];
  const op = opcode & 0x1f;
  const packet = {
    opcode,
    op,
    service: opcode >> 5,
    qp: f.readUIntBE(bth + 5, 3),
    psn: f.readUIntBE(bth + 9, 3),
    ackReq: f[bth + 8] >> 7 === 1,
    payload: end - bth - 12 - ((f[bth + 1] >> 4) & 3),
  };
  if (packet.qp === 1) {
    const mad = bth + 12 + 8;
    if (f[mad + 1] === 0x07) packet.attribute = f.readUInt16BE(mad + 16);
    return packet;
  }
  if (packet.service !== 0) return packet;
  if (op === Op.ACK || op === Op.ATOMIC_ACK || op === 0x0d || op === 0x0f || op === 0x10) {
    packet.syndrome = f[bth + 12];
    packet.msn = f.readUIntBE(bth + 13, 3);
  }
  if (op === Op.READ) packet.dmaLength = f.readUInt32BE(bth + 12 + 12);
  return packet;
}

export const isResponse = (op) => op >= Op.READ_FIRST && op <= Op.ATOMIC_ACK;

/** Difference of PSNs, −2^23 … 2^23 − 1. */
export const psnDiff = (a, b) => (((a - b) & 0xffffff) ^ 0x800000) - 0x800000;
export const psnAdd = (a, n) => (a + n) & 0xffffff;
