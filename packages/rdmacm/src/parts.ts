/**
 * Parts of rdma_cm for other packages: for the device of `roce run`, which has ids of its own (they are those of C programs), and for
 * rsockets, whose listeners accept as those of messages do.
 */
export { Acceptor } from './acceptor.ts';
export {
  gidOf,
  isAnyAddress,
  kindOf,
  parseHeader,
  type SocketAddress,
  sourceTowards,
  withHeader,
} from './addresses.ts';
export { RDMA_UDP_QKEY } from './datagram.ts';
export { Endpoint, type Sink } from './endpoint.ts';
export { invalid } from './errors.ts';
export { type RequestTerms, refusalOf, requestOf, type WaitingRequest } from './incoming.ts';
export { LocalSide } from './local-side.ts';
export { ADDRESS } from './options.ts';
export { bindPort, type PortBinding } from './ports.ts';
export { ACK_DELAY, initiatorSteps, listenerSteps, type OwnSide } from './qp-steps.ts';
export { reach } from './reach.ts';
