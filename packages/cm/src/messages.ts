/** The messages of one connection (IBTA vol 1 §12.6). */
import { type CmInput, CmMraMessage, CmRejMessage, CmRejReason, mtuBytesToEnum } from '@node-roce/wire';
import type { AcceptInit, ConnectInit, RejectInit } from './parameters.ts';
import { replyFields, requestFields, type ServiceName } from './transport.ts';

/** RoCE has no LIDs. */
export const PERMISSIVE_LID = 0xffff;
/** The only partition of a RoCE port. */
export const DEFAULT_PKEY = 0xffff;

/** The facts of a connection that its messages carry. */
export interface Sender {
  readonly caGuid: bigint;
  readonly service: ServiceName;
  /** Both communication ids. */
  readonly id: number;
  readonly remoteId: number;
  readonly remoteQpn: number;
  /** Of REQ: messages of this attempt carry it (IBTA leaves that open; Linux does so). */
  readonly transactionId: bigint;
  /** Of the messages that this side begins itself. */
  readonly ownTransactionId: bigint;
  /** Code, of MRA. */
  readonly serviceTimeout: number;
}

/** Fields of a message that the call gives, or the message that it answers. */
export interface Content {
  privateData?: Uint8Array | undefined;
  request?: CmInput<'REQ'>;
  accept?: AcceptInit;
  reject?: RejectInit;
  /** The whole LAP, of `AlternatePaths`. */
  path?: CmInput<'LAP'>;
  /** Of the message that is answered. */
  answers?: { localCommId: number; transactionId: bigint };
}

const idsOf = ({ id, remoteId, transactionId }: Sender) => ({
  transactionId,
  localCommId: id,
  remoteCommId: remoteId,
});

const dataOf = ({ privateData }: Content) => (privateData ? { privateData } : {});

function rejectOf(sender: Sender, messageRejected: number, init: RejectInit = {}): CmInput<'REJ'> {
  const { reason = CmRejReason.CONSUMER_DEFINED, additionalInfo, privateData } = init;
  return {
    name: 'REJ',
    ...idsOf(sender),
    messageRejected,
    reason,
    ...(additionalInfo ? { additionalInfo, additionalInfoLength: additionalInfo.length } : {}),
    ...(privateData ? { privateData } : {}),
  };
}

const moreTime = (sender: Sender, messageMraed: number, { answers }: Content): CmInput<'MRA'> => ({
  name: 'MRA',
  ...idsOf(sender),
  ...(answers ? { transactionId: answers.transactionId } : {}),
  messageMraed,
  serviceTimeout: sender.serviceTimeout,
});

/** The messages, with what each REJ refuses and each MRA is about. */
export const MESSAGES = {
  REQ: (sender, { request }) =>
    requestFields(sender.service, {
      ...request,
      name: 'REQ',
      localCommId: sender.id,
      transactionId: sender.transactionId,
    } as CmInput<'REQ'>),
  REP: (sender, { accept }) => {
    const { qpn, targetAckDelay = 15, rnrRetryCount = 7, ...offer } = accept!;
    return replyFields(sender.service, {
      name: 'REP',
      ...idsOf(sender),
      ...offer,
      localQpn: qpn,
      targetAckDelay,
      rnrRetryCount,
      localCaGuid: sender.caGuid,
    } as CmInput<'REP'>);
  },
  RTU: (sender, content) => ({ name: 'RTU', ...idsOf(sender), ...dataOf(content) }),
  MRA_REQ: (sender) => moreTime(sender, CmMraMessage.REQ, {}),
  MRA_REP: (sender) => moreTime(sender, CmMraMessage.REP, {}),
  MRA_LAP: (sender, content) => moreTime(sender, CmMraMessage.LAP, content),
  REJ_REQ: (sender, { reject }) => rejectOf(sender, CmRejMessage.REQ, reject),
  REJ_REP: (sender, { reject }) => rejectOf(sender, CmRejMessage.REP, reject),
  REJ_OTHER: (sender, { reject }) => rejectOf(sender, CmRejMessage.OTHER, reject),
  REJ_TIMEOUT: (sender) =>
    rejectOf(sender, CmRejMessage.OTHER, {
      reason: CmRejReason.TIMEOUT,
      additionalInfo: guidBytes(sender.caGuid),
    }),
  /** To a REQ whose connection has ended: without an id of ours. */
  REJ_STALE: (_sender, { answers }) => ({
    name: 'REJ',
    remoteCommId: answers!.localCommId,
    transactionId: answers!.transactionId,
    messageRejected: CmRejMessage.OTHER,
    reason: CmRejReason.STALE_CONNECTION,
  }),
  DREQ: (sender, content) => ({
    name: 'DREQ',
    ...idsOf(sender),
    transactionId: sender.ownTransactionId,
    remoteQpn: sender.remoteQpn,
    ...dataOf(content),
  }),
  DREP: (sender, content) => ({
    name: 'DREP',
    ...idsOf(sender),
    transactionId: content.answers!.transactionId,
    ...dataOf(content),
  }),
  LAP: (_sender, { path }) => path!,
} as const satisfies Record<string, (sender: Sender, content: Content) => CmInput>;

export type MessageName = keyof typeof MESSAGES;

/** Additional info of a REJ for a timeout: the sender's CA GUID (§12.6.7.2). */
function guidBytes(guid: bigint): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, guid);
  return bytes;
}

/** The fields of REQ that do not depend on the id: of the call, and of this side. */
export function requestOf(
  init: ConnectInit,
  own: { caGuid: bigint; gid: Uint8Array; responseTimeout: number; maxRetries: number; ackTimeout: number },
): CmInput<'REQ'> {
  const { route, privateData } = init;
  return {
    name: 'REQ',
    serviceId: init.serviceId,
    localCaGuid: own.caGuid,
    localQpn: init.qpn,
    responderResources: init.responderResources,
    initiatorDepth: init.initiatorDepth,
    remoteCmResponseTimeout: own.responseTimeout,
    endToEndFlowControl: init.endToEndFlowControl ?? false,
    startingPsn: init.startingPsn,
    localCmResponseTimeout: own.responseTimeout,
    retryCount: init.retryCount ?? 7,
    pkey: DEFAULT_PKEY,
    pathMtu: mtuBytesToEnum(init.pathMtu),
    rnrRetryCount: init.rnrRetryCount ?? 7,
    maxCmRetries: own.maxRetries,
    srq: init.srq ?? false,
    primaryLocalLid: PERMISSIVE_LID,
    primaryRemoteLid: PERMISSIVE_LID,
    primaryLocalGid: own.gid,
    primaryRemoteGid: route.gid,
    primaryFlowLabel: route.flowLabel,
    primaryTrafficClass: route.trafficClass,
    primaryHopLimit: route.hopLimit,
    primaryServiceLevel: init.serviceLevel ?? 0,
    primaryAckTimeout: own.ackTimeout,
    ...(privateData ? { privateData } : {}),
  };
}
