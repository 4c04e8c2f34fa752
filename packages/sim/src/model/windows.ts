/**
 * Memory windows, type 1 and type 2B: what binding one asks for, and how its life ends (IBTA vol 1 §10.6.7.2,
 * §9.4.1.1). A bound window is a region among the others; nothing else may distinguish them.
 */
import { type ModelMemory, type ModelRegion, servesQp } from './memory.ts';
import { ModelAccess } from './verbs.ts';

export interface ModelWindow {
  type: 1 | 2;
  /** The key it was made with or bound with last: the upper 24 bits are the adapter's for good. */
  rkey: number;
  /** The range of a region that it opens; it counts while it is among the regions of the memory. */
  bound?: ModelRegion;
}

/** The request of a BIND_MW. */
export interface WindowBind {
  window: ModelWindow;
  /** The new key: the program chooses the low 8 bits. */
  rkey: number;
  /** The region of the L_Key; `undefined` for an unknown one. */
  region: ModelRegion | undefined;
  /** First byte, as the region names it. */
  va: bigint;
  /** 0 ends the binding of a type 1 window. */
  length: number;
  /** `Access` bits: remote rights, ZERO_BASED. */
  access: number;
}

const WRITING = ModelAccess.REMOTE_WRITE | ModelAccess.REMOTE_ATOMIC;

/** Bound, and not invalidated since. */
export function isBound(memory: ModelMemory, { bound }: ModelWindow): boolean {
  return bound !== undefined && memory.regions.includes(bound);
}

/** Binds if every rule allows it; else returns the rule that does not. @param qpn the queue pair it was posted to */
export function bindWindow(memory: ModelMemory, bind: WindowBind, qpn: number): string | undefined {
  const fault = checkBind(memory, bind);
  if (fault !== undefined) return fault;
  const { window, rkey, region, va, length, access } = bind;
  memory.regions = memory.regions.filter((r) => r !== window.bound);
  window.rkey = rkey;
  window.bound = undefined;
  if (length === 0 || region === undefined) return undefined;
  const start = Number(va - region.base);
  window.bound = {
    rkey,
    base: access & ModelAccess.ZERO_BASED ? 0n : va,
    bytes: region.bytes.subarray(start, start + length),
    access,
    invalidatable: window.type === 2,
    ...(window.type === 2 ? { qpn } : {}),
  };
  memory.regions.push(window.bound);
  return undefined;
}

/** Rules of binding a window, by the compliance statements' numbers. */
function checkBind(memory: ModelMemory, bind: WindowBind): string | undefined {
  const { window, region, length, access } = bind;
  if ((bind.rkey ^ window.rkey) >>> 8 !== 0) return 'the key does not belong to the window';
  if (window.type === 1 && access & ModelAccess.ZERO_BASED) return 'o10-36.2.2: a type 1 window from zero';
  if (window.type === 2 && isBound(memory, window)) return 'o10-37.2.30: a type 2 window that is bound';
  if (window.type === 2 && length === 0) return 'o10-37.2.40: a type 2 window of no bytes';
  if (length === 0) return undefined;
  return checkBoundRegion(memory, region, bind);
}

function checkBoundRegion(
  memory: ModelMemory,
  region: ModelRegion | undefined,
  { va, length, access }: WindowBind,
): string | undefined {
  if (region === undefined || !memory.regions.includes(region)) return 'C10-72: no region of the domain';
  if (!(region.access & ModelAccess.MW_BIND)) return 'C10-73: the region allows no windows';
  if (access & WRITING && !(region.access & ModelAccess.LOCAL_WRITE))
    return 'C10-74: the region may not be written';
  const start = va - region.base;
  const inside = start >= 0n && start + BigInt(length) <= BigInt(region.bytes.length);
  return inside ? undefined : 'C10-75: not inside of the region';
}

/**
 * Ends a binding, from here or from the peer; false if the key names no type 2 window that is bound through
 * this queue pair (§9.4.1.1, o10-37.2.26).
 */
export function invalidate(memory: ModelMemory, rkey: number, qpn: number): boolean {
  const index = memory.regions.findIndex((r) => r.rkey === rkey && r.invalidatable && servesQp(r, qpn));
  if (index < 0) return false;
  memory.regions.splice(index, 1);
  return true;
}
