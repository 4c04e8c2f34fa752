/** Things that a rule needs of the device and of the way to it, each with the text for "not testable". */
export const NEEDS = {
  rc: 'a reliable connection',
  uc: 'an unreliable connection',
  ud: 'a datagram queue pair',
  write: 'remote write',
  read: 'remote read',
  atomic: 'remote atomics',
  rights: 'more than one access right on one queue pair',
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
  drain: 'a send queue that is drained',
  counters: "the device's counters",
  listener: 'a service at the connection manager (--via cm)',
  caller: 'a client at the device that connects to the tester (--via cm)',
  capture: 'a capture (--capture)',
  frames: 'whole frames (--link packet)',
  spoof: 'packets from another address (--link packet)',
} as const;

export type Need = keyof typeof NEEDS;

/** A way to a device. */
export type Via = 'agent' | 'perftest' | 'cm' | 'model';
/** How packets leave and arrive on a network. */
export type Link = 'packet' | 'udp';

/** What each program next to a device serves. The agent: if the device has it. */
export const SERVED = {
  agent: [
    'rc',
    'uc',
    'ud',
    'write',
    'read',
    'atomic',
    'flush',
    'atomicWrite',
    'receives',
    'srq',
    'post',
    'completions',
    'memory',
    'state',
    'attributes',
    'bounds',
    'regions',
    'fail',
    'destroy',
    'deregister',
    'rtr',
    'init',
    'fence',
    'windows',
    'reregister',
    'domains',
    'events',
    'drain',
    'counters',
  ],
  perftest: ['rc', 'write', 'read', 'atomic'],
  cm: ['listener', 'caller'],
} as const satisfies Record<string, readonly Need[]>;

/** The model has one protection domain, and its queue pairs go from RESET to RTS in one step. */
const NOT_OF_MODEL: readonly Need[] = ['capture', 'domains', 'rtr'];

const OF_LINK = { packet: ['frames', 'spoof'], udp: [] } as const satisfies Record<Link, readonly Need[]>;

/** What a rule needs that this way to a device does not serve: it is not testable there. */
export function lacksOf(
  { needs }: { readonly needs: readonly Need[] },
  via: Via,
  link: Link = 'packet',
): readonly Need[] {
  if (via === 'model') return needs.filter((need) => NOT_OF_MODEL.includes(need));
  const served: readonly Need[] = [...SERVED[via], ...OF_LINK[link]];
  const lacks = needs.filter((need) => !served.includes(need));
  const rights = needs.filter((need) => need === 'write' || need === 'read' || need === 'atomic');
  // Each of perftest's servers allows one.
  return via === 'perftest' && rights.length > 1 ? [...lacks, 'rights'] : lacks;
}

/** Whether a rule is one of those that a whole run plays on this way to a device. The others would all be not testable. */
export function isServedBy(rule: { readonly needs: readonly Need[] }, via: Via): boolean {
  return via === 'model' || lacksOf(rule, via).length === 0;
}
