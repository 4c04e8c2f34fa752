/** Ways to break a connection manager, and the service behind it. */
import { type CmInput, type CmMessage, type CmName, decodeCm, encodeCm } from '@node-roce/wire';
import { SERVICE_ID } from '../../src/virtual/listening-model.ts';
import type { BrokenDevice, Mutant } from '../broken-device.ts';

type Change<N extends CmName> = (message: CmMessage<N>, device: BrokenDevice) => object | undefined;

function changed<N extends CmName>(
  mad: Uint8Array,
  device: BrokenDevice,
  name: N,
  change: Change<N>,
): Uint8Array | undefined {
  const decoded = decodeCm(mad);
  if (!decoded.ok || decoded.message.name !== name) return mad;
  const { message } = decoded;
  const fields = change(message as unknown as CmMessage<N>, device);
  if (fields === undefined) return undefined;
  if (!('name' in fields)) return encodeCm({ ...message, ...fields } as CmInput);
  // Another message of the same connection.
  const { transactionId, localCommId, remoteCommId } = message as CmMessage<'RTU'>;
  return encodeCm({ transactionId, localCommId, remoteCommId, ...fields } as CmInput);
}

/** Messages with this name arrive changed; undefined: not at all. */
const hears = <N extends CmName>(name: N, change: Change<N>): Pick<Mutant, 'hearMad'> => ({
  hearMad: (mad, device) => changed(mad, device, name, change),
});

/** Messages with this name leave changed, or not at all. */
const sends = <N extends CmName>(name: N, change: Change<N>): Pick<Mutant, 'sendMad'> => ({
  sendMad: (mad, device) => {
    const sent = changed(mad, device, name, change);
    return sent === undefined ? [] : [sent];
  },
});

/** How many times this was called for the device. */
function count({ notes }: BrokenDevice): number {
  notes.count = ((notes.count as number | undefined) ?? 0) + 1;
  return notes.count as number;
}

/** For QP1. */
const isOfManager = (bytes: Uint8Array): boolean => bytes[5] === 0 && bytes[6] === 0 && bytes[7] === 1;

const never = () => undefined;
const cutOrFilled = (mad: Uint8Array, length: number): Uint8Array => {
  const bytes = new Uint8Array(length);
  bytes.set(mad.subarray(0, length));
  return bytes;
};

export const connectionManagerMutants: Readonly<Record<string, Mutant>> = {
  'REQ is not answered': { seenBy: ['CM-01', 'CM-03', 'CM-04', 'CM-05', 'CM-17'], ...sends('REP', never) },
  'REP with a transaction ID of its own': {
    seenBy: ['CM-01'],
    ...sends('REP', ({ transactionId }) => ({ transactionId: transactionId ^ 1n })),
  },
  'REP without a communication id': { seenBy: ['CM-01'], ...sends('REP', () => ({ localCommId: 0 })) },
  'REP names queue pair 1': { seenBy: ['CM-01'], ...sends('REP', () => ({ localQpn: 1 })) },
  'REP without a CA GUID': { seenBy: ['CM-01'], ...sends('REP', () => ({ localCaGuid: 0n })) },
  'REP with a depth beyond the resources of REQ': {
    seenBy: ['CM-01'],
    ...sends('REP', () => ({ initiatorDepth: 16 })),
  },
  'DREP with another communication id': {
    seenBy: ['CM-01'],
    ...sends('DREP', ({ localCommId }) => ({ localCommId: localCommId ^ 1 })),
  },
  'DREQ is not answered': { seenBy: ['CM-01', 'CM-06', 'CM-18'], ...sends('DREP', never) },
  'a service of nobody is accepted': {
    seenBy: ['CM-02'],
    ...hears('REQ', () => ({ serviceId: SERVICE_ID })),
  },
  'REJ for nobody who listens has another reason': {
    seenBy: ['CM-02'],
    ...sends('REJ', ({ reason }) => ({ reason: reason === 8 ? 3 : reason })),
  },
  'a repeated REQ makes another connection': {
    seenBy: ['CM-03'],
    ...hears('REQ', ({ localCommId, localQpn }, device) => {
      const more = count(device) & 15;
      return { localCommId: localCommId + more, localQpn: localQpn + more };
    }),
    // Ids of the tester are multiples of 16.
    ...sends('REP', ({ remoteCommId }) => ({ remoteCommId: remoteCommId & ~15 })),
  },
  'REP is never repeated': {
    seenBy: ['CM-04'],
    ...sends('REP', (_message, device) => (count(device) > 1 ? undefined : {})),
  },
  'REP is repeated too early': {
    seenBy: ['CM-04'],
    ...hears('REQ', () => ({ localCmResponseTimeout: 14 })),
  },
  'a repeated REP names another queue pair': {
    seenBy: ['CM-04'],
    ...sends('REP', ({ localQpn }, device) => ({ localQpn: localQpn + count(device) })),
  },
  'an MRA is not taken': { seenBy: ['CM-05'], ...hears('MRA', never) },
  'an MRA is not taken, and the first REP is the last': {
    seenBy: ['CM-05'],
    hearMad: (mad, device) => {
      const decoded = decodeCm(mad);
      if (decoded.ok && decoded.message.name === 'MRA') return undefined;
      return changed(mad, device, 'REQ', () => ({ maxCmRetries: 0 }));
    },
  },
  'DREQ for any queue pair is taken': {
    seenBy: ['CM-07'],
    ...hears('DREQ', ({ remoteCommId }, { cm }) => {
      const own = [...cm.connections.values()].find(({ localId }) => localId === remoteCommId);
      return { remoteQpn: own?.localQpn ?? 0 };
    }),
  },
  'a queue pair may be connected twice': {
    seenBy: ['CM-08'],
    ...hears('REQ', ({ localCommId }) => ({ localCaGuid: BigInt(localCommId) })),
  },
  'REQ for UC is accepted': { seenBy: ['CM-09'], accepts: 'service' },
  'any class version is taken': {
    seenBy: ['CM-13'],
    hearMad: (mad) => Uint8Array.from(mad, (byte, at) => (at === 2 ? 2 : byte)),
  },
  'any class is taken': {
    seenBy: ['CM-13'],
    hearMad: (mad) => Uint8Array.from(mad, (byte, at) => (at === 1 ? 7 : byte)),
  },
  'a MAD of any length is taken': { seenBy: ['CM-13'], hearMad: (mad) => cutOrFilled(mad, 256) },
  'any version of IP CM is accepted': { seenBy: ['CM-14'], accepts: 'IP CM' },
  'any P_Key is accepted': { seenBy: ['CM-15'], ...hears('REQ', () => ({ pkey: 0xffff })) },
  'any GID is accepted': { seenBy: ['CM-16'], accepts: 'gid' },
  'a REJ of the REP is not taken': { seenBy: ['CM-17'], ...hears('REJ', never) },
  'a REJ that does not name the id is not taken': {
    seenBy: ['CM-24'],
    ...hears('REJ', ({ remoteCommId }) => (remoteCommId === 0 ? undefined : {})),
  },
  'a repeated DREQ is not answered': {
    seenBy: ['CM-18'],
    ...sends('DREP', (_message, device) => (count(device) > 1 ? undefined : {})),
  },
  'the PSN in REQ is not taken': { seenBy: ['CM-19'], ...hears('REQ', () => ({ startingPsn: 0 })) },
  'REP names a PSN that is not expected': {
    seenBy: ['CM-19', 'CM-20'],
    ...sends('REP', ({ startingPsn }) => ({ startingPsn: startingPsn + 1 })),
  },
  'a DREQ is not answered behind one of its own': {
    seenBy: ['CM-31'],
    ...hears('DREQ', (_message, { cm }) =>
      [...cm.connections.values()].some(({ state }) => state === 'DREQ_SENT') ? undefined : {},
    ),
  },
  'each connection has the same queue pair number': {
    seenBy: ['CM-33', 'CM-34'],
    ...hears('DREQ', (_message, { cm }) => ({
      remoteQpn: [...cm.connections.values()].at(-1)?.localQpn ?? 0,
    })),
    ...sends('REP', () => ({ localQpn: 0x1234 })),
  },
  'DREQ is never repeated': {
    seenBy: ['CM-30'],
    ...sends('DREQ', (_message, device) => (count(device) > 1 ? undefined : {})),
  },
  'DREQ is repeated too early': {
    seenBy: ['CM-30'],
    ...hears('REQ', () => ({ localCmResponseTimeout: 14 })),
  },
  'DREQ is repeated more often than REQ allows': {
    seenBy: ['CM-30'],
    ...hears('REQ', () => ({ maxCmRetries: 5 })),
  },
  'data in front of RTU is dropped': {
    seenBy: ['CM-32'],
    arrive: (packet, { cm }) => {
      const isOpen = [...cm.connections.values()].every(({ state }) => state !== 'REP_SENT');
      return isOpen || isOfManager(packet.bytes) ? packet : undefined;
    },
  },
  'a REQ that names queue pair 0 stops the service': {
    seenBy: ['CM-26'],
    ...hears('REQ', ({ localQpn }, { cm }) => {
      if (localQpn === 0) cm.unlisten(SERVICE_ID);
      return {};
    }),
  },
  'a REQ without a CA stops the service': {
    seenBy: ['CM-26'],
    ...hears('REQ', ({ localCaGuid }, { cm }) => {
      if (localCaGuid === 0n) cm.unlisten(SERVICE_ID);
      return {};
    }),
  },
  'a LAP of nobody stops the service': {
    seenBy: ['FUZ-02'],
    hearMad: (mad, { cm }) => {
      const decoded = decodeCm(mad);
      if (decoded.ok && decoded.message.name === 'LAP') cm.unlisten(SERVICE_ID);
      return mad;
    },
  },
  'the retry count of REQ is not taken': {
    seenBy: ['CM-36'],
    ...hears('REQ', () => ({ retryCount: 3 })),
  },
  'the RNR retry count of REQ is not taken': {
    seenBy: ['CM-36'],
    ...hears('REQ', () => ({ rnrRetryCount: 3 })),
  },
  'a repeated REP is not answered': {
    seenBy: ['CM-28'],
    ...sends('RTU', (_message, device) => (count(device) > 1 ? undefined : {})),
  },
  'REP is not answered with RTU': { seenBy: ['CM-28'], ...sends('RTU', never) },
  'REQ is never repeated': {
    seenBy: ['CM-29'],
    ...sends('REQ', ({ localCommId }, { notes }) => {
      const isFirst = notes.asked !== localCommId;
      notes.asked = localCommId;
      return isFirst ? {} : undefined;
    }),
  },
  'REQ is repeated before its time': {
    seenBy: ['CM-29'],
    ...sends('REQ', () => ({ remoteCmResponseTimeout: 16 })),
  },
  'a repeated REQ has another queue pair': {
    seenBy: ['CM-29'],
    ...sends('REQ', ({ localQpn }, device) => ({ localQpn: localQpn + count(device) })),
  },
  'REQ is repeated more often than it says': {
    seenBy: ['CM-29'],
    ...sends('REQ', () => ({ maxCmRetries: 1 })),
  },
  'many REQs stop the service': {
    seenBy: ['CM-34'],
    ...hears('REQ', (_message, device) => {
      if (count(device) === 40) device.cm.unlisten(SERVICE_ID);
      return {};
    }),
  },
  'a SIDR_REQ for nobody is not answered': { seenBy: ['CM-23'], ...sends('SIDR_REP', never) },
  'a SIDR_REQ for nobody is answered with success': {
    seenBy: ['CM-23'],
    ...sends('SIDR_REP', () => ({ status: 0 })),
  },
  'a LAP ends the connection': {
    seenBy: ['CM-25'],
    ...hears('LAP', ({ remoteQpn }) => ({ name: 'DREQ', remoteQpn })),
  },
  'a LAP is answered with REJ': {
    seenBy: ['CM-25'],
    ...sends('APR', () => ({ name: 'REJ', messageRejected: 2, reason: 28 })),
  },
  'a REQ with an alternate path is dropped': {
    seenBy: ['CM-38'],
    ...hears('REQ', ({ alternateLocalLid }) => (alternateLocalLid === 0 ? {} : undefined)),
  },
  'a REQ with an alternate path is refused for its service': {
    seenBy: ['CM-38'],
    ...hears('REQ', ({ alternateLocalLid }) => (alternateLocalLid === 0 ? {} : { serviceId: 9n })),
  },
  'an MRA ends the connection': {
    seenBy: ['CM-39'],
    ...hears('MRA', (_, { victims }) => ({ name: 'DREQ', remoteQpn: victims.at(-1)?.pair.info.qpn })),
  },
};
