/** Frames at the speed at which a gigabyte of them is bearable: one buffer, headers patched in place. */
import { crc32 } from 'node:zlib';
import { createRandom } from '@node-roce/sim';
import {
  BTH_ACK_REQ,
  BTH_BYTES,
  BTH_PAD_SHIFT,
  BthFlags,
  crc32Byte,
  crc32Update,
  flowLabelFromQpns,
  icrcIpUdp,
  Opcode,
  opcodeInfo,
  PSN_MASK,
  ROCE_UDP_PORT,
  setU16,
  sourcePortFromFlowLabel,
  writeAeth,
  writeAtomicAck,
  writeAtomicEth,
  writeBth,
  writeIcrc,
  writeReth,
} from '@node-roce/wire';

const ETHERNET = 14;
const IP = ETHERNET;
const UDP = IP + 20;
const BTH = UDP + 8;

/** Bytes that payloads are cut from: it is not looked at, but it should not be compressible either. */
const PAYLOAD = pseudoRandom(1 << 18);

function pseudoRandom(length) {
  const random = createRandom(4791);
  const words = Uint32Array.from({ length: length / 4 }, () => random.next());
  return new Uint8Array(words.buffer);
}

/**
 * @typedef {object} End
 * @property {number} host last byte of its addresses
 * @property {number} qpn
 * @property {number} rkey
 */

/** Frames of one connection. */
export class Framer {
  #out = new Uint8Array(BTH + 4096 + 64);
  #requester;
  #responder;
  #port;
  #ids;

  /**
   * @param {End} requester
   * @param {End} responder
   * @param {Uint16Array} ids the next IPv4 Identification of each host
   */
  constructor(requester, responder, ids) {
    this.#requester = requester;
    this.#responder = responder;
    this.#port = sourcePortFromFlowLabel(flowLabelFromQpns(requester.qpn, responder.qpn));
    this.#ids = ids;
    const b = this.#out;
    setU16(b, 12, 0x0800);
    b[IP] = 0x45;
    b[IP + 6] = 0x40;
    b[IP + 8] = 64;
    b[IP + 9] = 17;
    setU16(b, UDP + 2, ROCE_UDP_PORT);
  }

  /** The frame of a packet; holds until the next call. @param {import('./traffic.mjs').Shown} packet */
  frame(packet) {
    const b = this.#out;
    const [from, to] = packet.fromRequester
      ? [this.#requester, this.#responder]
      : [this.#responder, this.#requester];
    const info = opcodeInfo(packet.opcode);
    const isCnp = packet.opcode === Opcode.CNP;
    // The 16 bytes of a CNP belong to its headers.
    const payload = isCnp ? 0 : packet.payload;
    const pad = -payload & 3;
    const end = BTH + info.headerLength + payload + pad;

    b.set([2, 0, 0, 0, 0, to.host, 2, 0, 0, 0, 0, from.host]);
    b[IP + 1] = isCnp ? 0xc0 : packet.marked ? 3 : 2;
    setU16(b, IP + 2, end + 4 - IP);
    setU16(b, IP + 4, this.#ids[from.host]++);
    b.set([192, 0, 2, from.host, 192, 0, 2, to.host], IP + 12);
    writeIpChecksum(b);
    setU16(b, UDP, isCnp ? 0 : this.#port);
    setU16(b, UDP + 4, end + 4 - UDP);

    const psn = packet.psn & PSN_MASK;
    const flags = isCnp ? 0 : BthFlags.MIG_REQ | (pad << BTH_PAD_SHIFT);
    writeBth(b, BTH, packet.opcode, flags, 0xffff, to.qpn, packet.ackReq ? BTH_ACK_REQ + psn : psn);
    if (isCnp) {
      b[BTH + 4] = 0x40; // BECN
      b.fill(0, BTH + BTH_BYTES, end);
    }
    const { reth, aeth, atomicEth, atomicAckEth } = info.offsets;
    const va = 0x1000_0000 + (packet.offset ?? 0);
    if (reth >= 0) writeReth(b, BTH + reth, 0x7f00, va, to.rkey, packet.remaining);
    if (aeth >= 0) writeAeth(b, BTH + aeth, packet.syndrome, packet.msn & PSN_MASK);
    if (atomicEth >= 0) writeAtomicEth(b, BTH + atomicEth, 0x7f00, va, to.rkey, 0, 1, 0, 0);
    if (atomicAckEth >= 0) writeAtomicAck(b, BTH + atomicAckEth, 0, packet.psn >>> 0);
    if (payload > 0) {
      const at = (packet.psn * 1024 * 7) & (PAYLOAD.length / 2 - 1);
      b.set(PAYLOAD.subarray(at, at + payload), BTH + info.headerLength);
      b.fill(0, end - pad, end);
    }
    // IBTA vol 1 §7.8.1; the fifth byte of the BTH is masked. zlib's CRC is what makes it quick.
    const register = crc32Byte(crc32Update(icrcIpUdp(b, IP), b, BTH, BTH + 4), 0xff);
    writeIcrc(b, end, crc32(b.subarray(BTH + 5, end), ~register >>> 0));
    return b.subarray(0, end + 4);
  }
}

function writeIpChecksum(b) {
  let sum = 0;
  for (let i = IP; i < IP + 20; i += 2) if (i !== IP + 10) sum += (b[i] << 8) | b[i + 1];
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  setU16(b, IP + 10, ~sum & 0xffff);
}
