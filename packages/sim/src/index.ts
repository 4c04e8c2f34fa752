/** The model of the transport, a network in virtual time, and packet matchers. */

export * from './matchers.ts';
export * from './model/memory.ts';
export * from './model/packet.ts';
export * from './model/quirks.ts';
export * from './model/rc-qp.ts';
export * from './model/rc-requester.ts';
export * from './model/rc-requester-state.ts';
export * from './model/rc-requester-transmit.ts';
export { respond } from './model/rc-responder.ts';
export { CHECKS } from './model/rc-responder-checks.ts';
export * from './model/rc-responder-state.ts';
export * from './model/work.ts';
export * from './network/endpoint.ts';
export * from './network/engine-endpoint.ts';
export * from './network/frames.ts';
export * from './network/model-endpoint.ts';
export * from './network/network.ts';
export * from './network/pair.ts';
export * from './network/random.ts';
export * from './network/wire.ts';
export * from './network/workload.ts';
