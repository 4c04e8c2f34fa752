/** Answers to messages that need no connection, or have none (IBTA vol 1 §12.6). */
import { CmAprStatus, type CmMessage, CmRejMessage, CmRejReason } from '@node-roce/wire';

export const requestRefusal = (
  { localCommId, transactionId }: CmMessage<'REQ'>,
  reason: number,
  additionalInfo: Uint8Array = new Uint8Array(0),
) =>
  ({
    name: 'REJ',
    transactionId,
    remoteCommId: localCommId,
    messageRejected: CmRejMessage.REQ,
    reason,
    additionalInfo,
    additionalInfoLength: additionalInfo.length,
  }) as const;

export const replyRefusal = ({ localCommId, remoteCommId, transactionId }: CmMessage<'REP'>) =>
  ({
    name: 'REJ',
    transactionId,
    localCommId: remoteCommId,
    remoteCommId: localCommId,
    messageRejected: CmRejMessage.REP,
    reason: CmRejReason.INVALID_COMM_ID,
  }) as const;

export const disconnectReplyTo = ({ localCommId, remoteCommId, transactionId }: CmMessage<'DREQ'>) =>
  ({ name: 'DREP', transactionId, localCommId: remoteCommId, remoteCommId: localCommId }) as const;

/** Answers a LAP for no connection, or where paths do not migrate (Linux answers nothing at all over RoCE). */
export const alternatePathResponseTo = (
  { localCommId, remoteCommId, transactionId }: CmMessage<'LAP'>,
  known: boolean,
) =>
  ({
    name: 'APR',
    transactionId,
    localCommId: remoteCommId,
    remoteCommId: localCommId,
    status: known ? CmAprStatus.UNSUPPORTED : CmAprStatus.INVALID_COMM_ID,
  }) as const;
