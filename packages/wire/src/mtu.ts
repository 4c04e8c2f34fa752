/** Path MTU: the payload bytes of every packet of a message but its last. */

/** In bytes; the index + 1 is the code on the wire and in `enum ibv_mtu`. */
export const PATH_MTUS = [256, 512, 1024, 2048, 4096] as const;
export type PathMtu = (typeof PATH_MTUS)[number];

/**
 * Bytes that RoCEv2 puts round a payload at most, as rxe counts them: IP, UDP, the longest run of
 * transport headers, ICRC.
 */
export const MTU_OVERHEAD_BYTES = 80;

/**
 * 1 … 5 to 256 … 4096.
 * @throws RangeError for another code
 */
export function mtuEnumToBytes(code: number): PathMtu {
  const bytes = PATH_MTUS[code - 1];
  if (bytes === undefined) throw new RangeError(`path MTU code ${code}: expected 1 … 5`);
  return bytes;
}

/**
 * 256 … 4096 to 1 … 5.
 * @throws RangeError for another number of bytes
 */
export function mtuBytesToEnum(bytes: number): number {
  const index = PATH_MTUS.indexOf(bytes as PathMtu);
  if (index < 0) throw new RangeError(`path MTU ${bytes}: expected one of ${PATH_MTUS.join(', ')}`);
  return index + 1;
}

/**
 * The largest path MTU for a network interface: 1500 gives 1024, 9000 gives 4096 (rxe's rule, `eth_mtu_int_to_enum`).
 * @param ifMtu the interface's MTU in bytes
 * @returns bytes, or 0 when not even 256 fit
 */
export function pathMtuForInterface(ifMtu: number): PathMtu | 0 {
  for (let i = PATH_MTUS.length - 1; i >= 0; i--) {
    if (PATH_MTUS[i] + MTU_OVERHEAD_BYTES <= ifMtu) return PATH_MTUS[i];
  }
  return 0;
}
