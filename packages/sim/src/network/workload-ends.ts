/** Queue pairs of a device as flows want them: each with a part of the arena that looks like all of it. */

import type { SimDevice, SimQp, SimReceive } from './endpoint.ts';
import type { FlowEnd } from './workload-flow.ts';
import { ARENA_BYTES } from './workload-layout.ts';

/** @param at where the part begins, in the arenas of both ends */
export function flowEnd(device: SimDevice, qp: SimQp, at: number): FlowEnd {
  return {
    arena: device.arena.subarray(at, at + ARENA_BYTES),
    postReceive: shifted(at, (receive) => qp.postReceive(receive)),
    postSend: (send) =>
      qp.postSend({
        ...send,
        offset: send.offset + at,
        ...(send.remoteOffset === undefined ? {} : { remoteOffset: send.remoteOffset + at }),
        ...(send.bind === undefined ? {} : { bind: { ...send.bind, offset: send.bind.offset + at } }),
      }),
  };
}

export const shifted =
  (at: number, post: (receive: SimReceive) => void) =>
  (receive: SimReceive): void =>
    post({ ...receive, offset: receive.offset + at });
