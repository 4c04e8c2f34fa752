export { Adapter } from './adapter.ts';
export type { AdapterOptions } from './adapter-options.ts';
export { isEmptyGid, isMulticastGid, type PeerTable } from './addresses.ts';
export {
  COPY_WORDS,
  Copy,
  type CopyBatch,
  copyBatch,
  EFAULT,
  FRAGMENT_WORDS,
  Fragment,
  gatherSlot,
  Icrc,
  isMemoryGone,
  NO_PEER,
  RegionTable,
  RX_SLOT_WORDS,
  Rx,
  RxBatch,
  TX_HEADER_STRIDE,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
} from './batch.ts';
export {
  CONGESTION_DEFAULTS,
  CONTROLLERS,
  type Congestion,
  type ControllerName,
  checkCongestion,
  resolveCongestion,
} from './congestion/options.ts';
export {
  Access,
  EXPERIMENTAL,
  type Experimental,
  FlushLevel,
  FlushType,
  MIG_STATES,
  type MigState,
  QP_STATES,
  type QpState,
  QpStateCode,
  type QpType,
  type RetransmitCause,
  SendFlags,
  WC_STATUS_NAMES,
  WcFlags,
  WcOpcode,
  type WcOpcodeName,
  WcStatus,
  type WcStatusName,
  WrOpcode,
  type WrOpcodeName,
} from './constants.ts';
export type { AsyncEvent, Host } from './context.ts';
export {
  type AhAttr,
  type CqContents,
  type CqCreated,
  DEVICE_LIMITS,
  type DeviceLimits,
  EMPTY_GID,
  type GidEntry,
  type GlobalRoute,
  KEEP_EARLY,
  type KeepEarly,
  type MrCreated,
  type MrInit,
  type MwCreated,
  type MwType,
  type NullMrCreated,
  type QpAttr,
  type QpCap,
  type QpCreated,
  type QpInit,
  type QpQuery,
  type QpResized,
  RECOVERY_DEFAULTS,
  type Recovery,
  type SrqAttr,
  type SrqCreated,
  type SrqInit,
  type SrqModified,
  type SrqOp,
  type XrcdInit,
  type XrcTargetOpened,
} from './control.ts';
export {
  AdapterCounters,
  type AdapterCounts,
  addCounters,
  QP_COUNTER_NAMES,
  type QpCounterName,
  QpCounters,
} from './counters.ts';
export {
  CQE_WORDS,
  Cqe,
  HeaderSl,
  RecvWqe,
  SendWqe,
  SGE_WORDS,
  Sge,
  STAMPED_CQE_WORDS,
  TAGGED_CQE_WORDS,
} from './entry-words.ts';
export { type Errno, invalid, RoceBug, RoceError, type RoceErrorOptions } from './errors.ts';
export { QP_ATTRIBUTE_NAMES } from './modify.ts';
export type { Own } from './own.ts';
export { storePayload, type WordViews, wordViews } from './payload-stores.ts';
export {
  FRAME_SLOT_WORDS,
  Frame,
  type FrameBatch,
  type FrameCount,
  type FrameHost,
  type FrameMatch,
  type FramePort,
  type FrameRule,
  passesRule,
} from './raw/frames.ts';
export { type Reach, setReach } from './reach.ts';
export { RETRY_TIMER_FACTOR } from './requester/ack-timer.ts';
export { EVERY_NUMBER, intoClass, type ResidueClass } from './residue-class.ts';
export {
  BellControl,
  CONTROL_WORDS,
  Control,
  createRing,
  DOORBELL_RECV,
  type NewRing,
  Posted,
  type PostedCode,
  powerOfTwo,
  Ring,
  type RingFactory,
  type RingPlace,
  type RingShape,
  RingState,
  recvStride,
  sendStride,
  Waiting,
  type WaitingCode,
  WaitingThreads,
} from './rings.ts';
export { runOf, splitRun, unfoldRuns } from './run-slots.ts';
export { markRuns } from './runs.ts';
export { MAX_RENDEZVOUS_BYTES } from './tags/tagged-receives.ts';
export type { Clock } from './times.ts';
export {
  ALT_PATH,
  type QpAttrName,
  statesFrom,
  type Transition,
  transition,
  VALID_IN_STATE,
} from './transitions.ts';
export { WR_OPCODES, type WrOpcodeRow } from './wr-opcodes.ts';
