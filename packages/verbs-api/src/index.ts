export type { FaultOptions, Faults, NetworkInterface } from '@node-roce/link';
export {
  Access,
  type AhAttr,
  type AsyncEvent,
  type Congestion,
  type ControllerName,
  type DeviceLimits,
  type Experimental,
  type FrameCount,
  type FrameMatch,
  type FrameRule,
  type GidEntry,
  type GlobalRoute,
  type KeepEarly,
  type QpAttr,
  type QpCap,
  type QpQuery,
  type QpState,
  type QpType,
  type Recovery,
  RoceError,
  SendFlags,
  WcFlags,
  WcOpcode,
  type WcOpcodeName,
  WcStatus,
  type WcStatusName,
  WrOpcode,
  type WrOpcodeName,
} from '@node-roce/transport';
export { GSI_QKEY } from '@node-roce/wire';
export { AddressHandle, type AddressInit, GRH_BYTES } from './address-handle.ts';
export type { DeviceEvent, EventElement, PortEvent, TakenEvent } from './async-events.ts';
export type { CloseListener } from './closing.ts';
export { CompletionChannel } from './completion-channel.ts';
export { CompletionQueue, type CompletionQueueOptions } from './completion-queue.ts';
export type { ConnectionData, ConnectOptions } from './connection.ts';
export type { DeviceCounters, QueuePairCounters } from './counters.ts';
export { Device, type OpenDeviceOptions, type OpenOptions, openDevice } from './device.ts';
export { type DeviceAttributes, DeviceCap } from './device-attributes.ts';
export type { PacketInfo, Retransmission, StateChange } from './diagnostics.ts';
export { type DiagnosticMessages, subscribeDiagnostics } from './diagnostics-subscribe.ts';
export { type ConnectionListener, ConnectionPort } from './engine/connection-port.ts';
export type { LinkOptions } from './engine/open-link.ts';
export { EventChannel } from './event-channel.ts';
export { EventQueue } from './event-queue.ts';
export {
  Exchange,
  type ExchangeAddress,
  ExchangeServer,
  exchangeAsClient,
  exchangeAsServer,
  exchangeServer,
} from './exchange.ts';
export {
  type AccessInit,
  MemoryRegion,
  type RegisterOptions,
  type ReregisterOptions,
} from './memory-region.ts';
export { incRkey, MemoryWindow } from './memory-window.ts';
export { NullMemoryRegion } from './null-region.ts';
export { OPEN_METRICS_TYPE, openMetrics } from './open-metrics.ts';
export type { AwaitedRequests, AwaitedSend, AwaitedWrite, AwaitOptions } from './posting/awaited.ts';
export type { PreparedSends } from './posting/prepared.ts';
export type {
  AnySendWr,
  Datagram,
  FlushInit,
  MwBind,
  MwRange,
  RawSge,
  RecvWr,
  Remote,
  SendWr,
  SendWrAtomicWrite,
  SendWrBindMw,
  SendWrCommon,
  SendWrCompareSwap,
  SendWrData,
  SendWrFetchAdd,
  SendWrFlush,
  SendWrLocalInv,
  SendWrMessage,
  SendWrRead,
  SendWrSend,
  SendWrSendWithImm,
  SendWrSendWithInv,
  SendWrWrite,
  SendWrWriteWithImm,
  SgElement,
  SgeInit,
  TagOp,
} from './posting/send-wr.ts';
export { ProtectionDomain, type QueuePairInit } from './protection-domain.ts';
export { QueuePair } from './queue-pair.ts';
export type { QueuePairInitAttr } from './queue-pair-init.ts';
export { SharedReceiveQueue, type SharedReceiveQueueInit } from './shared-receive-queue.ts';
export { wallClock } from './wall-clock.ts';
export { completionError, WorkCompletion } from './work-completion.ts';
export { XrcDomain, type XrcDomainInit } from './xrc-domain.ts';
export { XrcTarget } from './xrc-target.ts';
