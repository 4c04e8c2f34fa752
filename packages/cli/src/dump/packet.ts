/** A RoCE packet of a capture as plain values, for `roce dump`. */
import {
  type AethValue,
  type AtomicAckEthValue,
  type AtomicEthValue,
  type BthValue,
  type DethValue,
  decodeAeth,
  decodeAtomicAck,
  decodeAtomicEth,
  decodeBth,
  decodeDeth,
  decodeFeth,
  decodeRdeth,
  decodeReth,
  decodeXrceth,
  EXTENSION_BYTES,
  type ExtensionName,
  type FethValue,
  formatIpAddress,
  ICRC_BYTES,
  icrcV1,
  icrcV2,
  iethRkey,
  immDt,
  type OpcodeInfo,
  opcodeInfo,
  type RdethValue,
  type RethValue,
  readIcrc,
  u16,
  type XrcethValue,
} from '@node-roce/wire';
import type { Located } from './locate.ts';

/** `none` where the capture was cut before the ICRC. */
export type IcrcVerdict = 'ok' | 'bad' | 'none';

export interface Extensions {
  rdeth?: RdethValue;
  deth?: DethValue;
  xrceth?: XrcethValue;
  feth?: FethValue;
  reth?: RethValue;
  atomicEth?: AtomicEthValue;
  aeth?: AethValue;
  atomicAckEth?: AtomicAckEthValue;
  immDt?: number;
  ieth?: { rkey: number };
}

export interface DumpPacket {
  located: Located;
  src: string;
  dst: string;
  /** UDP; undefined in RoCE v1. */
  srcPort: number | undefined;
  bth: BthValue;
  /** Undefined for a byte that is no opcode: nothing is known about what follows the BTH. */
  info: OpcodeInfo | undefined;
  /** Those that were captured. */
  extensions: Extensions;
  /** Bytes without pad, as the lengths of the packet say: also where the capture was cut. */
  payloadLength: number;
  icrc: IcrcVerdict;
  /** As it stands in the packet; undefined where `icrc` is `none`. */
  icrcValue: number | undefined;
  icrcExpected: number | undefined;
}

const decoders: { [K in ExtensionName]?: (b: Uint8Array, o: number) => unknown } = {
  rdeth: decodeRdeth,
  deth: decodeDeth,
  xrceth: decodeXrceth,
  feth: decodeFeth,
  reth: decodeReth,
  atomicEth: decodeAtomicEth,
  aeth: decodeAeth,
  atomicAckEth: decodeAtomicAck,
  immDt,
  ieth: (b, o) => ({ rkey: iethRkey(b, o) }),
};

export function readPacket(frame: Uint8Array, located: Located): DumpPacket {
  const { version, ip, udp, bth: at, end } = located;
  const isIpv4 = version === 2 && frame[ip]! >> 4 === 4;
  const [source, destination, length] = isIpv4 ? [ip + 12, ip + 16, 4] : [ip + 8, ip + 24, 16];
  const bth = decodeBth(frame, at);
  const info = opcodeInfo(bth.opcode);
  const extensions: Record<string, unknown> = {};
  for (const name of info?.extensions ?? []) {
    const offset = at + info!.offsets[name];
    if (offset + EXTENSION_BYTES[name] > Math.min(frame.length, end - ICRC_BYTES)) break;
    const decode = decoders[name];
    if (decode !== undefined) extensions[name] = decode(frame, offset);
  }
  const icrcAt = end - ICRC_BYTES;
  const whole = frame.length >= end;
  const icrcValue = whole ? readIcrc(frame, icrcAt) : undefined;
  const icrcExpected = whole ? (version === 2 ? icrcV2 : icrcV1)(frame, ip, icrcAt) : undefined;
  return {
    located,
    src: formatIpAddress(frame, source, length),
    dst: formatIpAddress(frame, destination, length),
    srcPort: udp < 0 ? undefined : u16(frame, udp),
    bth,
    info,
    extensions,
    payloadLength: Math.max(0, icrcAt - at - (info?.headerLength ?? 12) - bth.pad),
    icrc: !whole ? 'none' : icrcValue === icrcExpected ? 'ok' : 'bad',
    icrcValue,
    icrcExpected,
  };
}
