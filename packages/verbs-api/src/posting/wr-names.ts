/**
 * Names of members of work requests. They are looked at with each request, so the check is a loop over the names by a
 * switch on one string each, which allocates nothing; the error is worked out only when there is one.
 */
import { invalid, type RoceError, WR_OPCODES, WrOpcode } from '@node-roce/transport';
import { nearest } from '../options.ts';

const Name = {
  wrId: 1 << 0,
  opcode: 1 << 1,
  sgList: 1 << 2,
  signaled: 1 << 3,
  fence: 1 << 4,
  solicited: 1 << 5,
  inline: 1 << 6,
  immData: 1 << 7,
  invalidateRkey: 1 << 8,
  remote: 1 << 9,
  compareAdd: 1 << 10,
  swap: 1 << 11,
  ud: 1 << 12,
  bind: 1 << 13,
  flush: 1 << 14,
  remoteSrqn: 1 << 15,
} as const;
type MemberName = keyof typeof Name;

/** A literal switch: an object or a map as the table costs a hash look-up per name. */
function bitOf(name: string): number {
  switch (name) {
    case 'opcode':
      return Name.opcode;
    case 'sgList':
      return Name.sgList;
    case 'signaled':
      return Name.signaled;
    case 'wrId':
      return Name.wrId;
    case 'remote':
      return Name.remote;
    case 'inline':
      return Name.inline;
    case 'immData':
      return Name.immData;
    case 'ud':
      return Name.ud;
    case 'fence':
      return Name.fence;
    case 'solicited':
      return Name.solicited;
    case 'invalidateRkey':
      return Name.invalidateRkey;
    case 'compareAdd':
      return Name.compareAdd;
    case 'swap':
      return Name.swap;
    case 'bind':
      return Name.bind;
    case 'flush':
      return Name.flush;
    case 'remoteSrqn':
      return Name.remoteSrqn;
    default:
      return 0;
  }
}

/** Bits of the members that a receive may have. */
export const RECV_NAMES = Name.wrId | Name.sgList;

/** Bits of the members that a send request may have, by `WrOpcode`. */
export const SEND_NAMES_BY_OPCODE: readonly number[] = WR_OPCODES.map((row) => {
  const hasNoList = row.name === 'LOCAL_INV' || row.name === 'BIND_MW' || row.name === 'FLUSH';
  const isSend = row.consumesReceive && !row.remote;
  return (
    Name.wrId |
    Name.opcode |
    Name.signaled |
    Name.fence |
    (hasNoList ? 0 : Name.sgList) |
    (row.inline ? Name.inline : 0) |
    (row.consumesReceive ? Name.solicited : 0) |
    (row.immediate ? Name.immData : 0) |
    (row.invalidate ? Name.invalidateRkey : 0) |
    (row.remote ? Name.remote : 0) |
    (row.operands > 0 ? Name.compareAdd : 0) |
    (row.operands > 1 ? Name.swap : 0) |
    (isSend ? Name.ud : 0) |
    (row.name === 'BIND_MW' ? Name.bind : 0) |
    (row.name === 'FLUSH' ? Name.flush : 0)
  );
});

/** Bit of the member that names an SRQ of the peer. */
export const REMOTE_SRQN = Name.remoteSrqn;

/** The same for requests of XRC_INI queue pairs: each that leaves names an SRQ. */
export const XRC_NAMES_BY_OPCODE: readonly number[] = SEND_NAMES_BY_OPCODE.map((names, opcode) => {
  const isLocal = opcode === WrOpcode.LOCAL_INV || opcode === WrOpcode.BIND_MW;
  return isLocal ? names : names | REMOTE_SRQN;
});

/**
 * Checks the names in a request; members that are undefined, false or an empty list count as absent.
 *
 * @param allowed bits of the names that it may have
 * @param what names it in errors: `RDMA_WRITE`, `a receive`
 */
export function checkNames(wr: object, allowed: number, what: string): void {
  for (const name in wr) {
    if ((bitOf(name) & allowed) !== 0) continue;
    const value = (wr as Record<string, unknown>)[name];
    if (value === undefined || value === false || (Array.isArray(value) && value.length === 0)) continue;
    throw refused(name, allowed, what);
  }
}

function refused(name: string, allowed: number, what: string): RoceError {
  const names = (Object.keys(Name) as MemberName[]).filter((each) => (Name[each] & allowed) !== 0);
  if (bitOf(name) === 0) {
    const meant = nearest(name, names);
    return invalid(name, `${what} has no such member`, meant ?? names.join(', '));
  }
  if (name === 'remoteSrqn') return invalid(name, 'there are no SRQs to name', 'an XRC_INI queue pair');
  const others = WR_OPCODES.filter(({ opcode }) => (SEND_NAMES_BY_OPCODE[opcode] & bitOf(name)) !== 0);
  return invalid(
    name,
    `${what} has no such member`,
    `an opcode that has: ${others.map((row) => row.name).join(', ')}`,
  );
}

/** Checks the names in an element of a scatter/gather list that names a region. */
export function checkElementNames(element: object, index: number): void {
  for (const name in element) {
    if (name === 'mr' || name === 'offset' || name === 'length') continue;
    if ((element as Record<string, unknown>)[name] === undefined) continue;
    const names = ['mr', 'offset', 'length'];
    const expected = nearest(name, names) ?? names.join(', ');
    throw invalid(`sgList[${index}].${name}`, 'there is no such member', expected);
  }
}
