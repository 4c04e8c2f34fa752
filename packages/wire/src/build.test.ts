import { describe, expect, test } from 'vitest';
import { buildPacket, type PacketInput } from './build.ts';
import { fromHex, toHex } from './bytes.ts';
import { OPCODES } from './opcodes.ts';
import { FrameType, parseFrame } from './packet.ts';

function parsed(frame: Uint8Array, type: number = FrameType.RAW) {
  const result = parseFrame(frame, type);
  if (!result.ok) throw new Error(`${result.reason}: ${result.detail}`);
  return result.packet;
}

describe('defaults', () => {
  // Checksum and ICRC (the last four bytes) were computed in Python: zlib.crc32 over the masked bytes.
  test('of a SEND with five bytes, as bytes', () => {
    const bytes = buildPacket({
      ip: { source: '10.0.0.1', destination: '10.0.0.2' },
      bth: { opcode: 'RC_SEND_ONLY', destQp: 0x11, psn: 7 },
      payload: new TextEncoder().encode('hello'),
    });
    const ip = '45000034000040004011' + '26b7' + '0a0000010a000002';
    const udp = 'c00012b700200000';
    const bth = '0430ffff000000110000' + '0007';
    expect(toHex(bytes)).toBe(`${ip}${udp}${bth}68656c6c6f0000002f47b072`);
    const packet = parsed(bytes);
    expect([packet.icrcStatus, packet.bth.pad, packet.payloadLength]).toEqual(['ok', 3, 5]);
  });

  test.each(OPCODES.map(({ key }) => key))('%s needs nothing but its name', (opcode) => {
    for (const version of [1, 2] as const) {
      const packet = parsed(buildPacket({ version, ethernet: {}, bth: { opcode } }), FrameType.ETHERNET);
      expect(packet).toMatchObject({ version, icrcStatus: 'ok', bth: { pkey: 0xffff, destQp: 0, psn: 0 } });
      expect(Object.keys(packet.extensions)).toEqual([...packet.info.extensions]);
    }
  });

  test('IPv6 follows from the addresses; RoCE v1 has a GRH', () => {
    const bth = { opcode: 'UD_SEND_ONLY' } as const;
    const v6 = parsed(buildPacket({ ip: { source: 'fd00::1', destination: 'fd00::2' }, bth }));
    expect(v6.ip).toMatchObject({ version: 6, nextHeader: 17, hopLimit: 64 });
    const v1 = parsed(buildPacket({ version: 1, ethernet: { source: '02:00:00:00:00:01' }, bth }), 1);
    expect(v1).toMatchObject({ version: 1, ip: { nextHeader: 0x1b }, ethernet: { etherType: 0x8915 } });
    expect(toHex(v1.ethernet!.source)).toBe('020000000001');
  });

  test('a RETH counts the payload, and keeps given fields', () => {
    const payload = new Uint8Array(6);
    const input: PacketInput = { bth: { opcode: 'RC_RDMA_WRITE_ONLY' }, payload };
    expect(parsed(buildPacket(input)).extensions.reth).toEqual({ va: 0n, rkey: 0, length: 6 });
    const reth = { va: 0x1000n, length: 99 };
    const built = parsed(buildPacket({ ...input, extensions: { reth } }));
    expect(built.extensions.reth).toEqual({ va: 0x1000n, rkey: 0, length: 99 });
  });

  test('given fields win over computed ones, wrong ones too', () => {
    const packet = parsed(
      buildPacket({
        ip: { ttl: 1, checksum: 0xdead },
        udp: { sourcePort: 50_000 },
        bth: { opcode: 4, pad: 1, ackReq: true },
        payload: new Uint8Array(3),
        icrc: 0x1234_5678,
      }),
    );
    expect(packet).toMatchObject({
      ip: { ttl: 1, checksum: 0xdead },
      udp: { sourcePort: 50_000, destinationPort: 4791, checksum: 0 },
      bth: { pad: 1, ackReq: true },
      icrc: 0x1234_5678,
      icrcStatus: 'bad',
    });
  });
});

describe('refuses', () => {
  test.each<[string, PacketInput, string]>([
    [
      'an unknown name',
      { bth: { opcode: 'RC_SEND' as 'RC_SEND_ONLY' } },
      'no opcode RC_SEND: expected a name such as',
    ],
    ['an unknown number', { bth: { opcode: 0xff } }, 'no opcode 0xff'],
    [
      'a header of another opcode',
      { bth: { opcode: 'UC_SEND_ONLY' }, extensions: { reth: {} } },
      'UC Send Only has no extension header reth',
    ],
    [
      'text that is no address',
      { ip: { source: 'here' }, bth: { opcode: 4 } },
      'IP source here: expected an IPv4 or IPv6',
    ],
    [
      'addresses of two versions',
      { ip: { source: '::1', destination: '1.2.3.4' }, bth: { opcode: 4 } },
      'IPv6 destination of 4 bytes',
    ],
    [
      'half a MAC address',
      { ethernet: { source: '02:00' }, bth: { opcode: 4 } },
      'Ethernet source of 2 bytes',
    ],
    [
      'a key of 33 bits',
      { bth: { opcode: 'RC_RDMA_WRITE_ONLY' }, extensions: { reth: { rkey: 2 ** 32 } } },
      'RETH rkey 4294967296',
    ],
    ['a PSN of 25 bits', { bth: { opcode: 4, psn: 2 ** 24 } }, 'BTH psn 16777216'],
  ])('%s, by name', (_what, input, message) => {
    expect(() => buildPacket(input)).toThrow(message);
  });

  test('nothing that the frame of real hardware holds', () => {
    const UC = fromHex(
      '248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff000000d300cf17104630818be28935d90e9a95505401be885e50000078f353f3',
    );
    expect(toHex(buildPacket(parsed(UC, 1)))).toBe(toHex(UC));
  });
});
