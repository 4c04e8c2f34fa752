/** Things that a rule needs of the device and of the way to it, each with the text for "not testable". */
export const NEEDS = {
  rc: 'a reliable connection',
  uc: 'an unreliable connection',
  ud: 'a datagram queue pair',
  write: 'remote write',
  read: 'remote read',
  atomic: 'remote atomics',
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
  listener: 'a service at the connection manager (--via cm)',
  capture: 'a capture (--capture)',
  frames: 'whole frames (--link packet)',
  spoof: 'packets from another address (--link packet)',
} as const;

export type Need = keyof typeof NEEDS;
