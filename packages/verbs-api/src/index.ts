export type { FaultOptions, Faults, NetworkInterface } from '@node-roce/link';
export {
  Access,
  type AhAttr,
  type AsyncEvent,
  type DeviceLimits,
  type GidEntry,
  type GlobalRoute,
  type QpAttr,
  type QpCap,
  type QpQuery,
  type QpState,
  type QpType,
  RoceError,
  WcFlags,
  WcOpcode,
  type WcOpcodeName,
  WcStatus,
  type WcStatusName,
  WrOpcode,
  type WrOpcodeName,
} from '@node-roce/transport';
export { CompletionQueue, completionError, WorkCompletion } from './completion-queue.ts';
export {
  type ConnectionData,
  type ConnectOptions,
  Exchange,
  type ExchangeAddress,
  exchangeAsClient,
  exchangeAsServer,
} from './connection.ts';
export {
  Device,
  type DeviceAttributes,
  type DeviceEvent,
  type OpenOptions,
  openDevice,
} from './device.ts';
export { type AccessInit, MemoryRegion, type RegisterOptions } from './memory-region.ts';
export type { LinkOptions } from './open-link.ts';
export { ProtectionDomain, type QueuePairInit } from './protection-domain.ts';
export { QueuePair } from './queue-pair.ts';
export type { RecvWr, Remote, SendWr, SgeInit } from './work-request.ts';
