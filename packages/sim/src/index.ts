/**
 * For testing anything that speaks RoCE: an independent model of the transport's rules, networks that are bad on purpose
 * in virtual time, and matchers for packets. Everything random follows from a seed.
 *
 * - To compare a device of your own with the model: implement `Endpoint` (packets in, packets out, time as an argument),
 *   give `Pair` a function that makes one, let `MixedWorkload` run on it, and write `captureOf` the trace when
 *   something goes wrong. `examples/interop-suite.mjs` does it.
 * - To look at single packets: `expectPacket(bytes, bth({ … }), aeth({ … }))`.
 * - To lose packets of real sockets instead: `FaultLink`, or `openDevice({ faults })`.
 */

// Faults, and the randomness that decides over them; those of links on real sockets, too.
export { FaultLink, type FaultOptions, type Faults } from '@node-roce/link';
export { createRandom, type Random } from '@node-roce/wire';
// The model of a connection manager.
export * from './cm-model/cm.ts';
export type { CmConnection } from './cm-model/connection.ts';
export * from './cm-model/events.ts';
export type { CmFields, CmName } from './cm-model/layouts.ts';
export * from './cm-model/mad.ts';
export type { SidrModel, SidrRequest } from './cm-model/sidr.ts';
export {
  type CmCall,
  type CmEventKind,
  type CmInput,
  type CmRole,
  type CmState,
  ON_CALL,
  ON_INPUT,
  ROLE_OF,
} from './cm-model/states.ts';
// Engines on a fast wire.
export { type BusyOptions, type BusyOutcome, runBusy } from './express/busy.ts';
export { type FloodOptions, type FloodOutcome, runFlood } from './express/flood.ts';
// Goodput over lossy paths.
export { type GoodputOptions, type GoodputOutcome, runGoodput } from './goodput/goodput.ts';
// Lives of connections.
export { Life, type LifeOptions } from './life/life.ts';
export * from './life/profile.ts';
export * from './life/tally.ts';
// Matchers.
export * from './matchers.ts';
// The model.
export * from './model/grh.ts';
export * from './model/local-operations.ts';
export * from './model/memory.ts';
export * from './model/multicast.ts';
export * from './model/packet.ts';
export * from './model/quirks.ts';
export * from './model/rc-qp.ts';
export * from './model/rc-requester.ts';
export * from './model/rc-requester-state.ts';
export * from './model/rc-requester-transmit.ts';
export { respond } from './model/rc-responder.ts';
export { CHECKS } from './model/rc-responder-checks.ts';
export * from './model/rc-responder-state.ts';
export * from './model/receive-queue.ts';
export * from './model/uc-responder.ts';
export * from './model/ud-responder.ts';
export * from './model/unreliable-qp.ts';
export * from './model/unreliable-requester.ts';
export * from './model/verbs.ts';
export * from './model/windows.ts';
export * from './model/work.ts';
export * from './model/xrc-qp.ts';
// A network of two: endpoints, what lies between them, what passed.
export * from './network/capture.ts';
export { drawCongestion, withMarks } from './network/draw-congestion.ts';
export { drawRecovery } from './network/draw-recovery.ts';
export * from './network/endpoint.ts';
export { type Domain, EngineDevice } from './network/engine-device.ts';
export * from './network/engine-endpoint.ts';
export * from './network/frames.ts';
export { ModelDevice } from './network/model-device.ts';
export * from './network/model-endpoint.ts';
export * from './network/network.ts';
export * from './network/notification-point.ts';
export * from './network/pair.ts';
export type { SlowOptions } from './network/slowness.ts';
export * from './network/tap.ts';
export * from './network/wire.ts';
export * from './network/workload.ts';
export * from './network/workload-connections.ts';
export type { Flow } from './network/workload-flow.ts';
export { SERVICES_ARENA_BYTES, type ServicesOptions, ServicesWorkload } from './network/workload-services.ts';
export { XRC_ARENA_BYTES, type XrcOptions, XrcWorkload } from './network/workload-xrc.ts';
