/** Things that a rule needs of the device and of the way to it, each with the text for "not testable". */
export const NEEDS = {
  rc: 'a reliable connection',
  uc: 'an unreliable connection',
  ud: 'a datagram queue pair',
  write: 'remote write',
  read: 'remote read',
  atomic: 'remote atomics',
  flush: 'FLUSH',
  xrc: 'an XRC domain',
  placement: 'FLUSH and ATOMIC WRITE posted at the device',
  atomicWrite: 'ATOMIC WRITE',
  receives: 'receives posted at the device',
  srq: 'a shared receive queue',
  post: 'requests posted at the device',
  completions: "the device's completions",
  memory: 'a look into the memory of the device',
  state: 'the state of the queue pair',
  attributes: 'attributes of the queue pair by choice',
  bounds: 'a region that begins at the address of its key',
  regions: 'rights of the region by choice',
  fail: 'a queue pair put into the error state',
  destroy: 'a queue pair destroyed',
  deregister: 'a region deregistered',
  rtr: 'a queue pair left in RTR',
  init: 'a queue pair that is not connected',
  fence: 'a fence of posted requests',
  windows: 'memory windows',
  reregister: 'a region registered anew',
  domains: 'a second protection domain',
  events: 'asynchronous events',
  listener: 'a service at the connection manager (--via cm)',
  capture: 'a capture (--capture)',
  frames: 'whole frames (--link packet)',
  spoof: 'packets from another address (--link packet)',
} as const;

export type Need = keyof typeof NEEDS;

/** Needs that no program next to a device serves: a stack in virtual time does. */
const VIRTUAL: readonly Need[] = ['xrc', 'placement'];

/** Whether a rule is one of those that a whole run plays on this way to a device. The others would all be not testable. */
export function isServedBy(
  { needs }: { readonly needs: readonly Need[] },
  via: 'agent' | 'perftest' | 'cm' | 'model',
): boolean {
  if (via === 'model') return true;
  return needs.includes('listener') === (via === 'cm') && !needs.some((need) => VIRTUAL.includes(need));
}
