/** A device with nothing but a network before it, and messages of the connection manager that a stranger forges. */
import { MemoryNetwork } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import {
  BTH_BYTES,
  type CmInput,
  encodeCm,
  encodeIpCmHeader,
  GSI_QKEY,
  gidFromText,
  ipCmServiceId,
  MAD_BYTES,
  Opcode,
  PortSpace,
} from '@node-roce/wire';

export const PORT = 7471;
export const SERVICE = ipCmServiceId(PortSpace.TCP, PORT);
const [PEER, OWN] = ['10.0.0.1', '10.0.0.2'].map(gidFromText);
const DETH_BYTES = 8;

/** A message to queue pair 1, before the ICRC. */
function datagram(message: CmInput): Uint8Array {
  const headers = BTH_BYTES + DETH_BYTES;
  const bytes = new Uint8Array(headers + MAD_BYTES);
  const view = new DataView(bytes.buffer);
  bytes[0] = Opcode.UD_SEND_ONLY;
  view.setUint16(2, 0xffff);
  view.setUint32(4, 1);
  view.setUint32(BTH_BYTES, GSI_QKEY);
  view.setUint32(BTH_BYTES + 4, 1);
  bytes.set(encodeCm(message), headers);
  return bytes;
}

/** A device at `OWN`; `sent` has what it sends to `PEER`, from BTH on. */
export async function openTarget() {
  const network = new MemoryNetwork();
  const device = await openDevice({ link: network.link('10.0.0.2', 1024) });
  const peer = network.link('10.0.0.1', 1024);
  const sent: Uint8Array[] = [];
  peer.arrive = ({ bytes }) => void sent.push(bytes);
  return {
    device,
    sent,
    /** Messages of the connection manager among them. */
    answers: () =>
      sent.filter((bytes) => bytes[7] === 1).map((bytes) => bytes.subarray(BTH_BYTES + DETH_BYTES)),
    send: (message: CmInput) =>
      network.deliver(
        { bytes: datagram(message), source: PEER, trafficClass: 0, sourcePort: 1, hopLimit: 64 },
        OWN,
      ),
    counters: () => device.connections.call('cmCounters'),
    [Symbol.asyncDispose]: () => device.close(),
  };
}

/** Sixteen bytes of an IPv4 address. */
const inHeader = (gid: Uint8Array) => Uint8Array.from(gid, (byte, i) => (i < 12 ? 0 : byte));

/** Private data with the addresses of both sides. */
export const header = encodeIpCmHeader({
  ipVersion: 4,
  sourcePort: 50_000,
  source: inHeader(PEER),
  destination: inHeader(OWN),
});

/** A request with its number as its QPN and its depth. */
export const request = (number: number): CmInput<'REQ'> => ({
  name: 'REQ',
  transactionId: 1n,
  localCommId: number,
  serviceId: SERVICE,
  localCaGuid: 7n,
  localQpn: number,
  pkey: 0xffff,
  initiatorDepth: number % 100,
  pathMtu: 3,
  localCmResponseTimeout: 20,
  maxCmRetries: 15,
  primaryAckTimeout: 17,
  primaryLocalGid: PEER,
  primaryRemoteGid: OWN,
  privateData: header,
});

/** The sender of a request gives it up. */
export function withdrawal(number: number): CmInput<'REJ'> {
  const guid = new Uint8Array(8);
  guid[7] = 7;
  return {
    name: 'REJ',
    localCommId: number,
    messageRejected: 2,
    reason: 4,
    additionalInfoLength: 8,
    additionalInfo: guid,
  };
}
