/** Counts of the objects that the process holds: devices and what was made on them, sockets, listeners, descriptors. */
import { readdirSync } from 'node:fs';
import { CompletionQueue, Device, ProtectionDomain } from '@node-roce/verbs-api';

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
export function watchHoldings(): { now: () => Holdings; on: (device: Device) => number; stop: () => void } {
  const live = new Map<Device, { domains: Set<object>; queues: Set<object> }>();
  const heldBy = (device: Device) => {
    const held = live.get(device) ?? { domains: new Set(), queues: new Set() };
    live.set(device, held);
    return held;
  };
  const undo: (() => void)[] = [];
  /** Calls `after` at the end of each call of a method. Not a spy of vitest's: that keeps what each call was given and gave. */
  const follow = <T, N extends keyof T>(prototype: T, name: N, after: (self: T, result: unknown) => void) => {
    const method = prototype[name] as (...given: unknown[]) => Promise<unknown>;
    const followed = async function (this: T, ...given: unknown[]) {
      const result = await method.apply(this, given);
      after(this, result);
      return result;
    };
    prototype[name] = followed as T[N];
    undo.push(() => {
      prototype[name] = method as T[N];
    });
  };
  follow(Device.prototype, 'allocPd', (device, pd) => heldBy(device).domains.add(pd as object));
  follow(Device.prototype, 'createCq', (device, cq) => heldBy(device).queues.add(cq as object));
  follow(Device.prototype, 'close', (device) => live.delete(device));
  follow(ProtectionDomain.prototype, 'dealloc', (pd) => {
    for (const { domains } of live.values()) domains.delete(pd);
  });
  follow(CompletionQueue.prototype, 'destroy', (cq) => {
    for (const { queues } of live.values()) queues.delete(cq);
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
    /** Counts no more. */
    stop: () => {
      for (const restore of undo) restore();
    },
  };
}
