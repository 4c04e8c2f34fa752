/** A device without an agent, next to which a service accepts connections: `rping -s` or the like. Its connection manager is what is tested. */
import { ipCmServiceId, PortSpace } from '@node-roce/wire';
import { type Device, Untestable } from '../device.ts';
import { SERVED } from '../needs.ts';

/** rping's. */
const LISTENER_PORT = 7174;

/** @param port of the TCP port space, as `rdma_bind_addr` takes it */
export const listenerDevice = (host: string, port = LISTENER_PORT): Device => ({
  info: { name: `connection manager at ${host}` },
  offers: new Set(SERVED.cm),
  listener: { serviceId: ipCmServiceId(PortSpace.TCP, port) },
  connect: async () => {
    throw new Untestable('needs the agent, or perftest');
  },
});
