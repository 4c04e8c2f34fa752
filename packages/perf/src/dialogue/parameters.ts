/** The structure that peers of 6.28 and later compare (`struct perftest_parameters_negotiate`). */
import { broken } from '../errors.ts';
import type { AtomicType, Plan, Service, Verb } from '../plan.ts';
import { validatesData } from './versions.ts';

/** Bytes: of a build without mlx5dv, and of one with it. The sizes do not go together. */
export const PARAMETER_BYTES = { plain: 312, mlx5: 320 } as const;

/** 32-bit fields by offset, big-endian. */
const INTS = {
  test_method: 0,
  connection_type: 4,
  verb: 8,
  tst: 12,
  atomicType: 16,
  test_type: 20,
  report_fmt: 24,
  aes_xts: 48,
  num_of_qps: 52,
  duration: 56,
  use_rdma_cm: 60,
  use_write_with_imm: 64,
  no_enhanced_reorder: 68,
  sig_offload: 72,
  data_validation: 76,
} as const;
/** 64-bit fields by offset, big-endian. */
const LONGS = { size: 32, iters: 40 } as const;
/** Of `struct ibv_device_attr`, in the byte order of the host. */
const MAX_QP_RD_ATOM_AT = 80 + 144;
/** Seconds that perftest has in the structure where there is no duration. */
const DEFAULT_DURATION = 5;

const SERVICES: Record<Service, number> = { RC: 0, UC: 1, UD: 2 };
const ATOMICS: Record<AtomicType, number> = { CMP_AND_SWAP: 0, FETCH_AND_ADD: 1 };
const VERBS: Record<Verb, number> = { send: 0, write: 2, read: 4, atomic: 5 };
const WRITE_IMM = 3;

type Name = keyof typeof INTS | keyof typeof LONGS;

/** A test, as the fields describe it. */
export interface Negotiable {
  plan: Plan;
  rdmaCm: boolean;
  gigabits: boolean;
}

function valuesOf({ plan, rdmaCm, gigabits }: Negotiable): Record<Name, number> {
  return {
    test_method: plan.all ? 1 : 0,
    connection_type: SERVICES[plan.service],
    verb: plan.writeWithImm ? WRITE_IMM : VERBS[plan.verb],
    tst: plan.measure === 'lat' ? 0 : 1,
    // Of other verbs, what perftest's memset leaves there.
    atomicType: plan.verb === 'atomic' ? ATOMICS[plan.atomic] : 0,
    test_type: plan.duration === undefined ? 0 : 1,
    report_fmt: gigabits ? 0 : 1,
    size: plan.size,
    iters: plan.iters,
    aes_xts: 0,
    num_of_qps: plan.qps,
    duration: Math.trunc(plan.duration ?? DEFAULT_DURATION),
    use_rdma_cm: rdmaCm ? 1 : 0,
    // perftest's option changes the verb, and leaves this.
    use_write_with_imm: 0,
    no_enhanced_reorder: 0,
    sig_offload: 0,
    data_validation: 0,
  };
}

/** @param maxRdAtom READs and atomics that this side takes at once, sent as `max_qp_rd_atom` of its device */
export function encodeParameters(mine: Negotiable, maxRdAtom: number, bytes: number): Buffer {
  const message = Buffer.alloc(bytes);
  const values = valuesOf(mine);
  for (const [name, at] of Object.entries(INTS)) message.writeInt32BE(values[name as Name], at);
  for (const [name, at] of Object.entries(LONGS)) message.writeBigUInt64BE(BigInt(values[name as Name]), at);
  message.writeInt32LE(maxRdAtom, MAX_QP_RD_ATOM_AT);
  return message;
}

/** READs and atomics that the peer's device takes at once (`max_qp_rd_atom`). */
export const maxRdAtomOf = (theirs: Uint8Array): number => Buffer.from(theirs).readInt32LE(MAX_QP_RD_ATOM_AT);

/** @throws RoceError ERR_ROCE_EXCHANGE that names the first field in which the peer's test is another */
export function checkParameters(mine: Negotiable, theirs: Uint8Array, peerVersion: string): void {
  const message = Buffer.from(theirs);
  const values = valuesOf(mine);
  const different = (name: Name, value: number) =>
    broken(`the peer has ${name} ${value}, not ${values[name]}: both sides need the same options`);
  for (const [name, at] of Object.entries(INTS)) {
    // Padding of an earlier one, which its compiler may fill with anything.
    if (name === 'data_validation' && !validatesData(peerVersion)) continue;
    const value = message.readInt32BE(at);
    if (value !== values[name as Name]) throw different(name as Name, value);
  }
  for (const [name, at] of Object.entries(LONGS)) {
    const value = Number(message.readBigUInt64BE(at));
    if (value !== values[name as Name]) throw different(name as Name, value);
  }
}
