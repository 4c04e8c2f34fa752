import { gidFromText, Opcode } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { grhArea } from './grh.ts';
import { ModelGroups, MULTICAST_QPN } from './multicast.ts';
import type { ModelPacket } from './packet.ts';
import { postReceive } from './rc-responder-state.ts';
import { createUdResponder, GSI_QKEY, receiveUd, type UdResponder } from './ud-responder.ts';

const QKEY = 0x1111_1111;
const GRH = new Uint8Array(40).fill(9);

const responder = (qkey = QKEY) => createUdResponder({ qpn: 1, qkey, pathMtu: 1024 });

const post = (r: UdResponder, wrId: number, length = 100) => {
  const local = new Uint8Array(length);
  postReceive(r, { wrId, local });
  return local;
};

const datagram = (length: number, rest: Partial<ModelPacket> = {}): ModelPacket => ({
  opcode: Opcode.UD_SEND_ONLY,
  destQpn: 1,
  psn: 0,
  ackReq: false,
  solicited: false,
  pkey: 0xffff,
  deth: { qkey: QKEY, srcQpn: 0x77 },
  payload: new Uint8Array(length).fill(3),
  ...rest,
});

test('a datagram: 40 bytes of header, then the message; any PSN', () => {
  const r = responder();
  const local = post(r, 7);
  const immediate = { opcode: Opcode.UD_SEND_ONLY_WITH_IMMEDIATE, immediate: 5, psn: 99 };
  expect(receiveUd(r, datagram(4, immediate), GRH).completions).toEqual([
    { wrId: 7, status: 'SUCCESS', opcode: 'RECV', byteLen: 44, immediate: 5, sourceQpn: 0x77 },
  ]);
  expect([...local.subarray(38, 46)]).toEqual([9, 9, 3, 3, 3, 3, 0, 0]);
});

test.each<[string, ModelPacket]>([
  ['another Q_Key', datagram(1, { deth: { qkey: QKEY + 1, srcQpn: 1 } })],
  ['another P_Key', datagram(1, { pkey: 0x8001 })],
  ['another service', datagram(1, { opcode: Opcode.UC_SEND_ONLY })],
  ['longer than the MTU', datagram(1025)],
  ['longer than the receive', datagram(61)],
])('dropped in silence, the receive stays: %s', (_what, packet) => {
  const r = responder();
  post(r, 7);
  expect(receiveUd(r, packet, GRH)).toEqual({ completions: [], dropped: expect.any(String) });
  expect(receiveUd(r, datagram(60), GRH).completions).toMatchObject([{ wrId: 7, byteLen: 100 }]);
});

test('without a receive it is lost', () => {
  expect(receiveUd(responder(), datagram(1), GRH).dropped).toBe('no receive is posted');
});

test('QP1 hears its own Q_Key only', () => {
  const r = responder(GSI_QKEY);
  post(r, 7, 296);
  expect(receiveUd(r, datagram(256), GRH).dropped).toBe('Q_Key mismatch');
  const mad = datagram(256, { deth: { qkey: GSI_QKEY, srcQpn: 1 } });
  expect(receiveUd(r, mad, GRH).completions).toMatchObject([{ byteLen: 296, sourceQpn: 1 }]);
});

test('a bad receive ends the queue pair', () => {
  const r = responder();
  postReceive(r, { wrId: 7, local: new Uint8Array(100), broken: true });
  post(r, 8);
  expect(receiveUd(r, datagram(1), GRH).completions).toEqual([
    { wrId: 7, status: 'LOC_PROT_ERR' },
    { wrId: 8, status: 'WR_FLUSH_ERR' },
  ]);
});

test('multicast reaches each that is attached, once', () => {
  const groups = new ModelGroups();
  const [one, other] = ['239.77.0.5', 'ff0e::1'].map(gidFromText);
  for (const qpn of [5, 6, 5]) groups.attach(one, qpn);
  groups.attach(other, 6);
  expect(groups.addressees(one, MULTICAST_QPN)).toEqual([5, 6]);
  expect(groups.addressees(one, 5)).toEqual([]);
  expect(groups.addressees(gidFromText('10.0.0.1'), MULTICAST_QPN)).toEqual([]);
  expect(groups.addressees(gidFromText('10.0.0.1'), 5)).toEqual([5]);
  groups.detach(one, 5);
  expect(groups.addressees(one, MULTICAST_QPN)).toEqual([6]);
});

test('the IP header stands in the place of the GRH', () => {
  // The IPv4 header of an ACK that a Huawei adapter sent.
  const route = {
    source: gidFromText('192.168.70.4'),
    destination: gidFromText('192.168.70.6'),
    trafficClass: 2,
    hopLimit: 64,
  };
  const v4 = grhArea(route, 16);
  const header = '450200300000400040112d60c0a84604c0a84606';
  expect(Buffer.from(v4).toString('hex')).toBe('00'.repeat(20) + header);
  const gid = gidFromText('fd77::2');
  const v6 = grhArea({ ...route, source: gid, destination: gidFromText('fd77::3') }, 16);
  expect(Buffer.from(v6.subarray(0, 8)).toString('hex')).toBe('60200000001c1140');
  expect(v6.subarray(8, 24)).toEqual(gid);
});
