/** Memory of the analysis of a capture that holds more queue pairs than are followed, one packet each. */
// @module-tag slow
// @module-tag gate
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { LinkType, PcapEncoder } from '@node-roce/pcap';
import { buildPacket } from '@node-roce/wire';
import { expect, onTestFinished, test } from 'vitest';

const roce = join(import.meta.dirname, '../../packages/cli/bin/roce.js');
const QUEUE_PAIRS = 60_000;
/** Prints the most memory that the process had, KiB, as its last line on standard error. */
const WATCH = `process.on('exit', () => console.error(process.resourceUsage().maxRSS))`;

/** A SEND to each queue pair of one host. */
function capture(): Uint8Array {
  const encoder = new PcapEncoder({ linkType: LinkType.RAW });
  for (let i = 0; i < QUEUE_PAIRS; i++) {
    const data = buildPacket({
      ip: { source: '10.0.0.1', destination: '10.0.0.2', id: i & 0xffff },
      bth: { opcode: 'RC_SEND_ONLY', destQp: 100 + i, psn: i },
    });
    encoder.packet({ data, timestamp: BigInt(i) * 1000n });
  }
  return encoder.take();
}

async function memoryOf(...args: string[]) {
  const program = ['--import', `data:text/javascript,${WATCH}`, roce, ...args];
  const { stdout, stderr } = await promisify(execFile)(process.execPath, program, { maxBuffer: 2 ** 30 });
  return { stdout, megabytes: Number(stderr.trim().split('\n').at(-1)) / 1024 };
}

test('roce flows --json stays below 450 MB', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'capture-memory-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const path = join(folder, 'many.pcap');
  await writeFile(path, capture());
  const { stdout, megabytes } = await memoryOf('flows', '--json', path);
  const { connections, findings } = JSON.parse(stdout);
  expect(connections.length).toBe(20_000);
  expect(findings).toMatchObject([{ kind: 'too-many-connections' }, { kind: 'one-direction' }]);
  console.log(`result: ${megabytes.toFixed(0)} MB`);
  expect(megabytes).toBeLessThan(450);
});
