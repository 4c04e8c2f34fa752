/** The RDMA connection manager, sans-IO. */
export { Connections } from './connections.ts';
export {
  ackTimeoutCode,
  answerMicroseconds,
  askedInterval,
  askedMicroseconds,
  codeMicroseconds,
  DEFAULT_TIMING,
  type Timing,
} from './intervals.ts';
export {
  type AcceptInit,
  type AlternatePath,
  CmCounters,
  type CmEvent,
  type CmHost,
  type CmSize,
  type ConnectInit,
  type DatagramRequestEvent,
  type EndCause,
  type Offer,
  type RejectInit,
  type RequestEvent,
  type ResolveAnswer,
  type ResolveInit,
  type Route,
} from './parameters.ts';
export { aprStatusName, rejectReasonName, sidrStatusName } from './reasons.ts';
export { repliedQpn, type ServiceName, serviceOf } from './transport.ts';
