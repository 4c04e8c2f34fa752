/** The packets at the guest's end of the wire, captured around a test. */
import { type ChildProcess, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CaptureParser, LinkType } from '@node-roce/pcap';
import { gidToText, verifyIcrc } from '@node-roce/wire';
import type { Bridge } from './bridge.ts';
import { keep } from './logs.ts';
import { end, spawnTethered } from './process.ts';
import { ROCE } from './roce.ts';

/** Bytes of a slot in the kernel's ring and KiB of the ring: 7000 packets while tcpdump waits for a core. */
const SNAP = 9216;
const BUFFER = 65_536;
/** Bytes of a packet up to the end of its RETH, over IPv6. */
const HEADERS = 90;
/** Of the analysis of a capture. */
const MOST_LINES = 40;

/** A RoCE packet of a capture: offsets into its frame. */
export interface WirePacket {
  frame: Uint8Array;
  /** Seconds since 1970. */
  time: number;
  source: string;
  icrcOk: boolean;
  opcode: number;
  destQp: number;
  psn: number;
  /** BTH and all that follows but the ICRC; of a capture of headers, their beginning. */
  payload: Uint8Array;
}

/** A capture of the wire between guest and host. */
export class WireCapture {
  readonly file: string;
  readonly #directory: string;
  readonly #tcpdump: ChildProcess;
  readonly #said: { text: string };

  private constructor(directory: string, file: string, tcpdump: ChildProcess, said: { text: string }) {
    this.#directory = directory;
    this.file = file;
    this.#tcpdump = tcpdump;
    this.#said = said;
  }

  /**
   * Captures RoCE packets at the guest's port of the bridge until stopped: there, super-packets are cut already.
   *
   * @param headersOnly no more than BTH and RETH of each packet, for runs of many: its ICRC is not verified
   */
  static async start({ port }: Bridge, headersOnly = false): Promise<WireCapture> {
    const directory = mkdtempSync(join(tmpdir(), 'roce-wire-'));
    const file = join(directory, 'wire.pcap');
    const snap = headersOnly ? HEADERS : SNAP;
    const args =
      `-i ${port} -n -U --immediate-mode -s ${snap} -B ${BUFFER} -Z root -w ${file} udp port 4791`.split(' ');
    const tcpdump = spawnTethered('tcpdump', args, { stdio: ['ignore', 'ignore', 'pipe'] });
    const said = { text: '' };
    await new Promise<void>((resolve, reject) => {
      tcpdump.stderr?.on('data', (data) => {
        said.text += data;
        if (said.text.includes('listening on')) resolve();
      });
      tcpdump.on('exit', (code) => reject(new Error(`tcpdump ended with ${code}: ${said.text}`)));
    });
    return new WireCapture(directory, file, tcpdump, said);
  }

  /** Ends the capture and returns the packets, in order. */
  async stop(): Promise<WirePacket[]> {
    await this.#settled();
    const closed = once(this.#tcpdump, 'close'); // with it, its last words are here
    await end(this.#tcpdump, 'SIGINT');
    await closed;
    if (!/^0 packets dropped by kernel/m.test(this.#said.text))
      throw new Error(`the capture is not complete: ${this.#said.text}`);
    return readPackets(readFileSync(this.file));
  }

  /** tcpdump writes a little after a packet has passed, and drops the packets that it has not written when it ends. */
  async #settled(): Promise<void> {
    for (let size = -1; size !== statSync(this.file).size; await sleep(300)) size = statSync(this.file).size;
  }

  /** Of a test that failed: a second run may pass, and the machine may be gone before anybody looks into its logs. */
  keep(name: string): void {
    keep(this.file, `${name}.pcap`);
    const { stdout } = spawnSync(process.execPath, [ROCE, 'flows', this.file], { encoding: 'utf8' });
    console.log(`what "roce flows" says of ${name}:\n${stdout.split('\n').slice(0, MOST_LINES).join('\n')}`);
  }

  discard(): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

/** The RoCE packets of a capture file. */
export function readPackets(bytes: Uint8Array): WirePacket[] {
  const packets: WirePacket[] = [];
  const parser = new CaptureParser();
  parser.push(bytes);
  parser.end();
  for (const record of parser) {
    if (record.linkType !== LinkType.ETHERNET) continue;
    const frame = record.data.slice();
    const packet = locate(frame);
    if (packet) packets.push({ ...packet, frame, time: record.seconds + record.nanoseconds / 1e9 });
  }
  return packets;
}

function locate(frame: Uint8Array): Omit<WirePacket, 'frame' | 'time'> | undefined {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  const type = view.getUint16(12);
  const v4 = type === 0x0800;
  if (!v4 && type !== 0x86dd) return undefined;
  const header = v4 ? (frame[14] & 15) * 4 : 40;
  const end = 14 + (v4 ? view.getUint16(16) : 40 + view.getUint16(18));
  const bth = 14 + header + 8;
  if (end - bth < 16 || frame.length < bth + 12) return undefined;
  const whole = end <= frame.length;
  const source = v4 ? frame.subarray(26, 30).join('.') : gidToText(frame.subarray(22, 38));
  return {
    source,
    icrcOk: whole && verifyIcrc(frame, 14, end),
    opcode: frame[bth],
    destQp: view.getUint32(bth + 4) & 0xff_ffff,
    psn: view.getUint32(bth + 8) & 0xff_ffff,
    payload: frame.subarray(bth, Math.min(end - 4, frame.length)),
  };
}
