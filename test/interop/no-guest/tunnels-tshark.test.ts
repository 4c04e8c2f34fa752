/** Captures of the real rxe inside of tunnels: tshark sees RoCE there, and `roce dump` the same packets. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CaptureParser, LinkType, PcapEncoder } from '@node-roce/pcap';
import { afterAll, expect, test } from 'vitest';

const root = join(import.meta.dirname, '../../..');
const folder = mkdtempSync(join(tmpdir(), 'roce-tunnels-'));
afterAll(() => rmSync(folder, { recursive: true }));

const frames = (() => {
  const parser = new CaptureParser();
  parser.push(readFileSync(join(root, 'test/fixtures/captures/op_all.pcap')));
  parser.end();
  return [...parser].map(({ data }) => Buffer.from(data));
})();

const hex = (text: string) => Buffer.from(text.replaceAll(' ', ''), 'hex');
const MACS = hex('020000000001 020000000002');

/** An IPv4 packet between two switches. */
function ipv4(protocol: number, content: Buffer): Buffer {
  const header = hex('45000000 00004000 40000000 0a090001 0a090002');
  header.writeUInt16BE(20 + content.length, 2);
  header[9] = protocol;
  let sum = 0;
  for (let i = 0; i < 20; i += 2) sum += header.readUInt16BE(i);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  header.writeUInt16BE(~sum & 0xffff, 10);
  return Buffer.concat([MACS, hex('0800'), header, content]);
}

function udp(port: number, content: Buffer): Buffer {
  const header = hex('c0000000 00000000');
  header.writeUInt16BE(port, 2);
  header.writeUInt16BE(8 + content.length, 4);
  return ipv4(17, Buffer.concat([header, content]));
}

const gre = (header: string, content: Buffer) => ipv4(47, Buffer.concat([hex(header), content]));
const ip = (frame: Buffer) => frame.subarray(14);
const join2 = (header: string, content: Buffer) => Buffer.concat([hex(header), content]);

const TUNNELS: [name: string, wrap: (frame: Buffer) => Buffer][] = [
  ['gre', (frame) => gre('0000 0800', ip(frame))],
  ['gre 42', (frame) => gre('2000 0800 0000002a', ip(frame))],
  ['gre', (frame) => gre('0000 6558', frame)],
  ['geneve 42', (frame) => udp(6081, join2('0040 6558 00002a00', frame))],
  ['geneve 42', (frame) => udp(6081, join2('0140 6558 00002a00 01028000', frame))],
  ['mpls 42', (frame) => Buffer.concat([MACS, hex('8847 00064040 0002a140'), ip(frame)])],
  ['ipip', (frame) => ipv4(4, ip(frame))],
  ['vxlan 42', (frame) => udp(4789, join2('08000000 00002a00', frame))],
  ['erspan 100', (frame) => gre('1000 88be 00000001 1001 0064 00000000', frame)],
];

function call(command: string, args: readonly string[]): string {
  const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: 'utf8' });
  if (error) throw error;
  expect(status, stderr).toBe(0);
  return stdout;
}

test.each(TUNNELS.map(([name, wrap], i) => [i, name, wrap] as const))('%i %s', (i, name, wrap) => {
  const encoder = new PcapEncoder({ linkType: LinkType.ETHERNET });
  for (const frame of frames) encoder.packet({ data: wrap(frame), seconds: 1, nanoseconds: 0 });
  const file = join(folder, `${i}.pcap`);
  writeFileSync(file, encoder.take());
  const fields = ['frame.number', 'infiniband.bth.opcode', 'infiniband.bth.psn', 'infiniband.bth.destqp'];
  const theirs = call('tshark', ['-r', file, '-T', 'fields', ...fields.flatMap((field) => ['-e', field])])
    .trim()
    .split('\n')
    .map((line) => line.split('\t').map(Number));
  const out = call(process.execPath, [join(root, 'packages/cli/bin/roce.js'), 'dump', '--json', file]);
  const ours = out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(ours.map(({ frame, opcodeValue, psn, destQp }) => [frame, opcodeValue, psn, destQp])).toEqual(
    theirs,
  );
  expect(ours).toHaveLength(frames.length);
  expect(new Set(ours.map(({ icrc }) => icrc))).toEqual(new Set(['ok']));
  expect(new Set(ours.map(({ tunnel, vni }) => (vni === undefined ? tunnel : `${tunnel} ${vni}`)))).toEqual(
    new Set([name]),
  );
});
