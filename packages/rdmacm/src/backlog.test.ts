/** Requests that wait: as many as the backlog says, in their order, and those that are given up go. */
import { MemoryNetwork } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import {
  BTH_BYTES,
  type CmInput,
  encodeCm,
  GSI_QKEY,
  gidFromText,
  ipCmServiceId,
  MAD_BYTES,
  Opcode,
  PortSpace,
} from '@node-roce/wire';
import { expect, test } from 'vitest';
import { CmId } from './index.ts';

const SERVICE = ipCmServiceId(PortSpace.TCP, 7471);
const [PEER, OWN] = ['10.0.0.1', '10.0.0.2'].map(gidFromText);

/** A message to queue pair 1, before the ICRC. */
function datagram(message: CmInput): Uint8Array {
  const headers = BTH_BYTES + 8;
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

async function openListener(backlog: number) {
  const network = new MemoryNetwork();
  const device = await openDevice({ link: network.link('10.0.0.2', 1024) });
  const listening = new CmId({ device });
  await listening.listen({ port: 7471, backlog });
  return {
    device,
    listening,
    send: (message: CmInput) =>
      network.deliver(
        { bytes: datagram(message), source: PEER, trafficClass: 0, sourcePort: 1, hopLimit: 64 },
        OWN,
      ),
    pending: async () => (await device.connections.call('cmCounters')).pending,
  };
}

/** A request with its number as its PSN. */
const request = (number: number): CmInput => ({
  name: 'REQ',
  transactionId: 1n,
  localCommId: number,
  serviceId: SERVICE,
  localCaGuid: 7n,
  localQpn: number,
  initiatorDepth: number % 100,
  pathMtu: 3,
  primaryLocalGid: PEER,
  primaryRemoteGid: OWN,
  privateData: Uint8Array.of(0, 0x40),
});

test('1500 requests wait, and none is lost', async () => {
  const { device, listening, send, pending } = await openListener(2000);
  for (let i = 1; i <= 1500; i++) {
    send(request(i));
    if (i % 100 === 0) await expect.poll(pending).toBe(i);
  }
  for (let i = 1; i <= 1500; i++) {
    const id = await listening.getRequest();
    expect(id.request!.responderResources).toBe(i % 100);
    await id.destroy();
  }
  expect(await pending()).toBe(0);
  await device.close();
});

test('a request that its sender gives up goes, and its place is free', async () => {
  const { device, listening, send, pending } = await openListener(2);
  send(request(1));
  send(request(2));
  await expect.poll(pending).toBe(2);
  const guid = new Uint8Array(8);
  guid[7] = 7;
  send({
    name: 'REJ',
    localCommId: 1,
    messageRejected: 2,
    reason: 4,
    additionalInfoLength: 8,
    additionalInfo: guid,
  });
  await expect.poll(pending).toBe(1);
  send(request(3));
  await expect.poll(pending).toBe(2);
  const taken = [await listening.getRequest(), await listening.getRequest()];
  expect(taken.map((id) => id.request!.responderResources)).toEqual([2, 3]);
  for (const id of taken) await id.destroy();
  await device.close();
});
