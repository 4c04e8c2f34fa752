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
// The model of the connection manager.
export { CmModel } from './cm-model/cm.ts';
export type { CmEvent } from './cm-model/events.ts';
export type { CmFields } from './cm-model/layouts.ts';
export { type CmMessage, decodeCm, encodeCm } from './cm-model/mad.ts';
export { type CmInput, type CmState, ON_CALL, ON_INPUT, ROLE_OF } from './cm-model/states.ts';
// Matchers.
export { aeth, bth, describePacket, expectPacket, payload, reth } from './matchers.ts';
// The model.
export { bytesAt, checkAccess, type ModelRegion, readU64, writeU64 } from './model/memory.ts';
export { DEFAULT_PKEY, decodePacket, encodePacket, type ModelPacket, rowOf } from './model/packet.ts';
export { QUIRKS, type QuirkName } from './model/quirks.ts';
export { ModelQp } from './model/rc-qp.ts';
export { advanceTime, receiveResponse, timeOut } from './model/rc-requester.ts';
export { createRequester, nextDeadline, postSend, type Requester } from './model/rc-requester-state.ts';
export { type Plan, planPacket, sendPacket } from './model/rc-requester-transmit.ts';
export { respond } from './model/rc-responder.ts';
export { CHECKS } from './model/rc-responder-checks.ts';
export { createResponder, postReceive, type Responder } from './model/rc-responder-state.ts';
export { GRH_BYTES, GSI_QKEY } from './model/ud-responder.ts';
export { ModelAccess } from './model/verbs.ts';
export type { ModelCompletion, ModelOpcode, ModelSendRequest } from './model/work.ts';
// A network of two: endpoints, what lies between them, what passed.
export { captureOf } from './network/capture.ts';
export {
  type AttributeChange,
  type ConnectionOptions,
  type Endpoint,
  type EndpointInfo,
  INLINE_BYTES,
  type ResumableQp,
  type SimDevice,
  type SimQp,
  type SimQpOptions,
  type SimReceive,
  type SimRegion,
  type SimSend,
  type SimService,
  type SimSrq,
  type SimWindow,
  type SimXrcSrq,
  type VariableQp,
} from './network/endpoint.ts';
export { type Domain, EngineDevice, type EngineDeviceOptions } from './network/engine-device.ts';
export { EngineEndpoint } from './network/engine-endpoint.ts';
export { frameOf } from './network/frames.ts';
export { ModelDevice } from './network/model-device.ts';
export { ModelEndpoint, type ModelEndpointOptions } from './network/model-endpoint.ts';
export { Network, type SimHost, type TracedPacket } from './network/network.ts';
export { NotificationPoint } from './network/notification-point.ts';
export {
  CONNECTION_DEFAULTS,
  type EndpointFactory,
  type EndpointKind,
  type EndpointOptions,
  Pair,
  type PairOptions,
} from './network/pair.ts';
export type { SlowOptions } from './network/slowness.ts';
export { type TapCaptureOptions, type TapPlace, type TappedPacket, tap, tapCapture } from './network/tap.ts';
export { type SimPacket, Wire, type WireOptions } from './network/wire.ts';
export { MixedWorkload } from './network/workload.ts';
export { ConnectionsWorkload } from './network/workload-connections.ts';
export type { Flow } from './network/workload-flow.ts';
export { ARENA_BYTES } from './network/workload-layout.ts';
export { SERVICES_ARENA_BYTES, ServicesWorkload } from './network/workload-services.ts';
export { XRC_ARENA_BYTES, XrcWorkload } from './network/workload-xrc.ts';
