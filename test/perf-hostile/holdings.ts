/** Counts of the objects that the process holds: devices and what was made on them, sockets, listeners, descriptors. */
import { readdirSync } from 'node:fs';
import { CompletionQueue, Device, ProtectionDomain } from '@node-roce/verbs-api';
import { vi } from 'vitest';

/** Counts of objects that were made and have not been closed. A domain can only go when all that was made in it has gone. */
export interface Holdings {
  devices: number;
  domains: number;
  completionQueues: number;
  sockets: number;
  listeners: number;
  descriptors: number;
}

/** Counts from now on. A device takes what was made on it along when it closes. */
export function watchHoldings(): { now: () => Holdings; on: (device: Device) => number } {
  const live = new Map<Device, { domains: Set<object>; queues: Set<object> }>();
  const heldBy = (device: Device) => {
    const held = live.get(device) ?? { domains: new Set(), queues: new Set() };
    live.set(device, held);
    return held;
  };
  const { allocPd, createCq, close } = Device.prototype;
  vi.spyOn(Device.prototype, 'allocPd').mockImplementation(async function (this: Device) {
    const pd = await allocPd.call(this);
    heldBy(this).domains.add(pd);
    return pd;
  });
  vi.spyOn(Device.prototype, 'createCq').mockImplementation(async function (this: Device, ...given) {
    const cq = await createCq.apply(this, given);
    heldBy(this).queues.add(cq);
    return cq;
  });
  vi.spyOn(Device.prototype, 'close').mockImplementation(async function (this: Device, ...given) {
    await close.apply(this, given);
    live.delete(this);
  });
  const { dealloc } = ProtectionDomain.prototype;
  vi.spyOn(ProtectionDomain.prototype, 'dealloc').mockImplementation(async function (this: ProtectionDomain) {
    await dealloc.call(this);
    for (const { domains } of live.values()) domains.delete(this);
  });
  const { destroy } = CompletionQueue.prototype;
  vi.spyOn(CompletionQueue.prototype, 'destroy').mockImplementation(async function (this: CompletionQueue) {
    await destroy.call(this);
    for (const { queues } of live.values()) queues.delete(this);
  });

  return {
    /** Domains and completion queues on an open device. */
    on: (device) => (live.get(device)?.domains.size ?? 0) + (live.get(device)?.queues.size ?? 0),
    now: () => {
      const sum = (name: 'domains' | 'queues') =>
        [...live.values()].reduce((total, held) => total + held[name].size, 0);
      const resources = process.getActiveResourcesInfo();
      const count = (name: string) => resources.filter((one) => one === name).length;
      return {
        ...{ devices: live.size, domains: sum('domains'), completionQueues: sum('queues') },
        ...{ sockets: count('TCPSocketWrap'), listeners: count('TCPServerWrap') },
        descriptors: readdirSync('/proc/self/fd').length,
      };
    },
  };
}
