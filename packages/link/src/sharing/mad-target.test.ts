import { BTH_BYTES, type CmInput, DETH_BYTES, encodeCm, Opcode } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { type MadTarget, madTarget } from './mad-target.ts';

const HEAD = BTH_BYTES + DETH_BYTES;

function packetOf(message: CmInput): Uint8Array {
  const mad = encodeCm(message);
  const packet = new Uint8Array(3 + HEAD + mad.length);
  packet[3] = Opcode.UD_SEND_ONLY;
  packet.set(mad, 3 + HEAD);
  return packet;
}

const ROWS: [CmInput, MadTarget][] = [
  [{ name: 'REQ', serviceId: 77n, localCommId: 5 }, { service: 77n }],
  [{ name: 'SIDR_REQ', serviceId: 78n, requestId: 5 }, { service: 78n }],
  [{ name: 'SIDR_REP', requestId: 9 }, { number: 9 }],
  [{ name: 'REP', localCommId: 5, remoteCommId: 9 }, { number: 9 }],
  [{ name: 'RTU', localCommId: 5, remoteCommId: 9 }, { number: 9 }],
  [{ name: 'MRA', localCommId: 5, remoteCommId: 9 }, { number: 9 }],
  [{ name: 'REJ', localCommId: 5, remoteCommId: 9 }, { number: 9 }],
  [{ name: 'REJ', localCommId: 5 }, 'all'],
  [{ name: 'DREQ', localCommId: 5, remoteCommId: 9 }, { number: 9 }],
  [{ name: 'DREP', localCommId: 5, remoteCommId: 9 }, { number: 9 }],
  [{ name: 'LAP', localCommId: 5, remoteCommId: 9 }, { number: 9 }],
  [{ name: 'APR', localCommId: 5, remoteCommId: 9 }, { number: 9 }],
];

test.each(ROWS.map(([message, target]) => [message.name, message, target] as const))(
  'finds the receiver of %s',
  (_name, message, target) => {
    const packet = packetOf(message);
    expect(madTarget(packet, 3, packet.length - 3)).toEqual(target);
  },
);

test('leaves other messages than the connection manager’s to the device that has them', () => {
  const packet = packetOf({ name: 'REQ', serviceId: 77n });
  expect(madTarget(packet, 3, packet.length - 4)).toBeUndefined(); // Cut.
  const otherClass = packet.slice();
  otherClass[3 + HEAD + 1] = 0x81;
  expect(madTarget(otherClass, 3, packet.length - 3)).toBeUndefined();
  const otherOpcode = packet.slice();
  otherOpcode[3] = Opcode.UD_SEND_ONLY_WITH_IMMEDIATE;
  expect(madTarget(otherOpcode, 3, packet.length - 3)).toBeUndefined();
});
