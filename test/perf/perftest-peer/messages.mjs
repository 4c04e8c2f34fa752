// The bytes of perftest's dialogue, written from its documentation of what goes over the wire and from recordings
// (test/fixtures/perftest). Nothing here comes from packages/perf, which this peer judges.

/** The version as a number, as C's atof reads it: "6.06" is 6.06, "6.6" is 6.6. */
export const numberOf = (version) => Number.parseFloat(version) || 0;

/** Both sides at or above this exchange the structure. */
export const STRUCTURE_SINCE = 6.28;
/** Both sides below this write `done` at the end, which nobody reads. */
export const NO_DONE_SINCE = 6.17;

/** 16 bytes: the text and zeros. */
export function versionBytes(version) {
  const bytes = Buffer.alloc(16);
  bytes.write(version, 0, 15, 'latin1');
  return bytes;
}

export const textOf = (bytes) => bytes.toString('latin1').split('\0', 1)[0];

export function int32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

/** `enum ibv_mtu` as a decimal digit, and a zero. */
export const mtuBytes = (mtu) => Buffer.from([0x30 + Math.log2(mtu / 128), 0]);
export const mtuOf = (bytes) => 128 << Number.parseInt(textOf(bytes), 10);

// ---- keys ----

/** Members of a key line in their order, with the digits of each; the GID's 16 bytes stand before `srqn`. */
const KEY_DIGITS = { lid: 4, outReads: 4, qpn: 6, psn: 6, rkey: 8, vaddr: 16 };
/** Bytes of a key line with a GID; without one it has 59. */
export const KEY_BYTES = 108;

const hex = (value, digits) => value.toString(16).padStart(digits, '0');

/** A key line. `gid`: 16 bytes, or undefined. */
export function keyLine({ gid, srqn = 0, ...key }) {
  const parts = Object.entries(KEY_DIGITS).map(([name, digits]) => hex(key[name], digits));
  if (gid) parts.push(...[...gid].map((byte) => hex(byte, 2)));
  parts.push(hex(srqn, 8));
  return Buffer.from(`${parts.join(':')}${gid ? ':' : ''}\0`, 'latin1');
}

/** Reads a key line of either length. */
export function keyOf(line) {
  const parts = textOf(line).split(':');
  const wanted = line.length === KEY_BYTES ? 24 : 7;
  if (parts.length !== wanted) throw new Error(`a key line of ${parts.length} parts: ${textOf(line)}`);
  const number = (text) => Number.parseInt(text, 16);
  const [lid, outReads, qpn, psn, rkey] = parts.slice(0, 5).map(number);
  const gid = line.length === KEY_BYTES ? Buffer.from(parts.slice(6, 22).map(number)) : undefined;
  const srqn = number(parts[gid ? 22 : 6]);
  return { lid, outReads, qpn, psn, rkey, vaddr: BigInt(`0x${parts[5]}`), gid, srqn };
}

/** Bytes of a key that travels over RDMA: raw, not as text. From 6.29 on it has the address of tail markers too. */
const rawKeyBytes = (version) => (numberOf(version) >= 6.29 ? 64 : 56);

/** A raw key of a program of this version. */
export function rawKey({ lid, outReads, qpn, psn, rkey, vaddr, gid, srqn = 0 }, gidIndex, version) {
  const bytes = Buffer.alloc(rawKeyBytes(version));
  [lid, outReads, qpn, psn, rkey].forEach((value, i) => {
    bytes.writeUInt32BE(value >>> 0, 4 * i);
  });
  bytes.writeBigUInt64BE(vaddr, 24);
  const at = bytes.length - 24;
  if (gid) bytes.set(gid, at);
  bytes.writeUInt32BE(srqn, at + 16);
  bytes.writeInt32BE(gidIndex, at + 20);
  return bytes;
}

/** Reads a raw key of either length. */
export function rawKeyOf(bytes) {
  const [lid, outReads, qpn, psn, rkey] = [0, 4, 8, 12, 16].map((at) => bytes.readUInt32BE(at));
  const at = bytes.length - 24;
  return {
    ...{ lid, outReads, qpn, psn, rkey, vaddr: bytes.readBigUInt64BE(24) },
    ...{ gid: Buffer.from(bytes.subarray(at, at + 16)), srqn: bytes.readUInt32BE(at + 16) },
  };
}

// ---- the structure of 6.28 and later ----

/** Members as big-endian words, with their offsets; both sides' have to be equal. */
const STRUCTURE = {
  method: [0, 4],
  connection: [4, 4],
  verb: [8, 4],
  kind: [12, 4],
  atomic: [16, 4],
  duration: [20, 4],
  mbytes: [24, 4],
  size: [32, 8],
  iters: [40, 8],
  aesXts: [48, 4],
  qps: [52, 4],
  seconds: [56, 4],
  cm: [60, 4],
  immediate: [64, 4],
  noEnhancedReorder: [68, 4],
  signatureOffload: [72, 4],
  // 6.28 does not have this one, and leaves four bytes of padding here, which hold anything.
  dataValidation: [76, 4],
};
/** Behind the members: `struct ibv_device_attr` as it lies in memory, little-endian. */
const ATTRIBUTES = 80;
/** `max_qp_rd_atom` in it. */
const MAX_RD_ATOM = ATTRIBUTES + 144;
/** Bytes in all; a build with mlx5dv appends a mask of 64 bits, 0 for other vendors' devices. */
const structureBytes = (mlx5) => (mlx5 ? 320 : 312);

const VERBS = { send: 0, write: 2, writeImm: 3, read: 4, atomic: 5 };
const CONNECTIONS = { RC: 0, UC: 1, UD: 2 };
const ATOMICS = { CMP_AND_SWAP: 0, FETCH_AND_ADD: 1 };

/** The structure of a test (test.mjs), as 8 bytes a member at most. */
export function structureOf(test) {
  const members = {
    method: test.all ? 1 : 0,
    connection: CONNECTIONS[test.connection],
    verb: VERBS[test.verb === 'write' && test.immediate ? 'writeImm' : test.verb],
    kind: test.kind === 'bw' ? 1 : 0,
    // Only the atomic tests set it.
    atomic: test.verb === 'atomic' ? ATOMICS[test.atomic] : 0,
    duration: test.seconds ? 1 : 0,
    mbytes: test.gbits ? 0 : 1,
    size: test.size,
    iters: test.seconds ? 0 : test.iters,
    aesXts: 0,
    qps: test.qps,
    seconds: test.seconds || 5,
    cm: test.cm ? 1 : 0,
    // WRITE with immediate is a verb of its own; no program sets this one.
    immediate: 0,
    noEnhancedReorder: 0,
    signatureOffload: 0,
    dataValidation: numberOf(test.version) < 6.29 ? Buffer.alloc(4, test.stack).readInt32BE() : 0,
  };
  const bytes = Buffer.alloc(structureBytes(test.mlx5));
  for (const [name, [at, length]] of Object.entries(STRUCTURE)) {
    if (length === 8) bytes.writeBigUInt64BE(BigInt(members[name]), at);
    else bytes.writeInt32BE(members[name], at);
  }
  bytes.write('0.0.0', ATTRIBUTES, 'latin1');
  bytes.writeInt32LE(test.maxRdAtomic, MAX_RD_ATOM);
  return bytes;
}

/** The members as numbers by name. */
export function membersOf(bytes) {
  const read = ([at, length]) => (length === 8 ? Number(bytes.readBigUInt64BE(at)) : bytes.readInt32BE(at));
  return Object.fromEntries(Object.entries(STRUCTURE).map(([name, place]) => [name, read(place)]));
}

export const maxRdAtomicOf = (bytes) => bytes.readInt32LE(MAX_RD_ATOM);

/** Names of the members that differ. 6.28 has no `dataValidation`. @param version the lower one of both sides, as a number */
export function differences(mine, theirs, version) {
  const [a, b] = [membersOf(mine), membersOf(theirs)];
  if (version < 6.29) b.dataValidation = a.dataValidation;
  return Object.keys(STRUCTURE).filter((name) => a[name] !== b[name]);
}

// ---- reports ----

/** The five messages of a report, 8 bytes each: size, iterations, peak and average (MB/s or Gb/s), messages (Mpps). */
export function reportMessages({ size, iters, peak, average, rate }) {
  const numbers = [size, iters].map((value) => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64BE(BigInt(value));
    return bytes;
  });
  const doubles = [peak, average, rate].map((value) => {
    const bytes = Buffer.alloc(8);
    bytes.writeDoubleBE(value);
    return bytes;
  });
  return [...numbers, ...doubles];
}

export function reportOf([size, iters, peak, average, rate]) {
  return {
    ...{ size: Number(size.readBigUInt64BE()), iters: Number(iters.readBigUInt64BE()) },
    ...{ peak: peak.readDoubleBE(), average: average.readDoubleBE(), rate: rate.readDoubleBE() },
  };
}
